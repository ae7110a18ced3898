// How well a drafter predicts a target, asked of the same outputs before an export and after it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/aten.h"
#include "infer/forced/forced_alpha.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::recipes {

// A target and outputs of its own, on which a drafter's alpha is measured. Made once; drafters are then compared.
class AlphaCheck {
 public:
  // `model` is the drafter's directory; `text`: one source or prompt a line, at most kLines of them are used; empty: a
  // few sentences of ours, or random ids where there is no tokenizer. Errors: UserError when the target cannot be
  // loaded, is of another kind, or has another vocabulary than the drafter (named).
  AlphaCheck(const std::filesystem::path& target, const std::filesystem::path& model, const std::filesystem::path& text,
             at::Device device);
  ~AlphaCheck();

  // alpha_forced at temperature 1, and greedy agreement.
  infer::ForcedAlpha measure(model::TransformerModel& drafter) const;
  // "64 lines of test.de", for the card.
  const std::string& described() const { return described_; }

  static constexpr size_t kLines = 64;
  static constexpr int64_t kNewTokens = 32;

 private:
  void make_outputs();

  std::unique_ptr<model::TransformerModel> target_;
  std::vector<std::vector<int64_t>> sources_;
  std::vector<std::vector<int64_t>> outputs_;  // the target's greedy ones
  std::string described_;
};

}  // namespace draftsmith::recipes
