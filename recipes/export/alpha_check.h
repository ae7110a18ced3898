// Compares how well a drafter predicts a target before and after an export, on the same outputs.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/aten.h"
#include "infer/forced/forced_alpha.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::recipes {

// Target with some of its outputs, on which the alpha of drafters is measured.
class AlphaCheck {
 public:
  // `model` is the drafter's directory. `text` has one source or prompt a line, of which at most kLines are used;
  // empty: a few fixed sentences, or random ids if there is no tokenizer. Errors: UserError if the target cannot be
  // loaded, is of another kind, or has another vocabulary than the drafter.
  AlphaCheck(const std::filesystem::path& target, const std::filesystem::path& model, const std::filesystem::path& text,
             at::Device device);
  ~AlphaCheck();

  // Returns alpha_forced at temperature 1, and greedy agreement.
  infer::ForcedAlpha measure(model::TransformerModel& drafter) const;
  // Returns a description of the text for the card, for example "64 lines of test.de".
  const std::string& described() const { return described_; }

  static constexpr size_t kLines = 64;
  static constexpr int64_t kNewTokens = 32;

 private:
  void make_outputs();

  std::unique_ptr<model::TransformerModel> target_;
  std::vector<std::vector<int64_t>> sources_;
  std::vector<std::vector<int64_t>> outputs_;  // greedy outputs of the target
  std::string described_;
};

}  // namespace draftsmith::recipes
