// Options and results of an export.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "infer/forced/forced_alpha.h"

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
  // Facts that only the user knows, for the front matter of the card.
  std::optional<std::string> license = {};
  std::vector<std::string> language = {};
  std::optional<std::string> base_model = {};
  std::vector<std::string> dataset = {};
  static Fields<ExportOptions> fields();  // all but model and out
};

// Results of an export, for a message and the card.
struct ExportSummary {
  std::string format;
  std::string dtype;                         // type of the files
  size_t tensors = 0;                        // parameters compared
  double logits_difference = 0;              // relative to the largest
  std::optional<infer::ForcedAlpha> before;  // with a target
  std::optional<infer::ForcedAlpha> after;
  std::string alpha_text;  // description of the text for alpha
};

// Returns the comparison of logits as text: "equal", or "equal up to 1.4e-02 of the largest".
std::string equality(const ExportSummary& summary);

}  // namespace draftsmith::recipes
