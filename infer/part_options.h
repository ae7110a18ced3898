// Options that only some methods, window or acceptance rules read, so that whoever gives one to another is told that it
// would change nothing.
#pragma once

#include <string>
#include <vector>

#include "infer/decode_options.h"

namespace draftsmith::infer {

struct PartOption {
  std::string name;     // of a field of DecodeOptions
  bool used = false;    // whether the parts of these options read it
  std::string readers;  // the rules or methods that do
};

// All such options, in the light of what `options` decodes with.
std::vector<PartOption> part_options(const DecodeOptions& options);

}  // namespace draftsmith::infer
