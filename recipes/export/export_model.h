// `draftsmith export`: a model as a directory that other engines load, with proof that it arrived whole.
//
// What is written is loaded again and compared with the model it was made from before it gets its name: every parameter
// bit for bit in the stored type, no tensor missing and none added, logits on probe inputs, and alpha against a target
// when one is given. The probes and all hashes go along (draftsmith/export.json), so that `draftsmith verify` can ask
// again later; README.md is a model card.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <c10/core/Device.h>

#include "base/options.h"
#include "infer/forced_alpha.h"

namespace draftsmith::recipes {

struct ExportOptions {
  std::filesystem::path model = {};  // directory to export
  std::filesystem::path out = {};    // new directory
  std::string format = "hf";
  std::string dtype = "stored";
  std::optional<std::filesystem::path> target = {};
  std::optional<std::filesystem::path> text = {};
  std::optional<std::filesystem::path> results = {};
  int64_t shard_megabytes = 5000;
  static Fields<ExportOptions> fields();  // of all but model and out
};

// What an export did, for a message and the card.
struct ExportSummary {
  std::string format;
  std::string dtype;                         // of the files
  size_t tensors = 0;                        // parameters compared
  double logits_difference = 0;              // relative to the largest
  std::optional<infer::ForcedAlpha> before;  // with a target
  std::optional<infer::ForcedAlpha> after;
  std::string alpha_text;  // what alpha was measured on
};

// "equal", or "equal up to 1.4e-02 of the largest".
std::string equality(const ExportSummary& summary);

// Errors: UserError for options, models and files that cannot be used, a model without finite logits, and a type that
// cannot hold what it computes; RunError when a write fails or what was written is not what the model is. In both cases
// there is no `out`, and nothing else was touched.
ExportSummary export_model(const ExportOptions& options, c10::Device device);

}  // namespace draftsmith::recipes
