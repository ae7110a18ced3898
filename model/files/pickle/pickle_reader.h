// Reads the pickle of a state dict as a description of its tensors, without running anything it asks for: the opcodes
// that torch.save uses for dictionaries of tensors, and the few functions it calls, known by name. Everything else is
// an error.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace draftsmith::model {

// A dense tensor as the pickle describes it. Nothing in it is checked against what is stored.
struct PickledTensor {
  std::string storage_type;  // "FloatStorage", ...
  std::string record;        // name of the storage's record in the archive
  int64_t offset = 0;        // elements
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

// The tensors of a pickled dictionary of names to tensors (or parameters), dict or OrderedDict.
// Errors: std::runtime_error that says what is wrong or not known.
std::map<std::string, PickledTensor> read_pickled_tensors(std::string_view pickle);

}  // namespace draftsmith::model
