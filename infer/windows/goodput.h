// The window `goodput`: drafts on while another token raises the tokens that a round is expected to put out in its
// time. The survival of token k, the probability that the first k drafted tokens all stay, is taken as S_k = q(x_1) ...
// q(x_k) with the drafter's own probabilities, and that of the next one as S_k^(1 + 1/k). With the marginal cost m of a
// drafted token, its draft step and its share of verification over a step of the target, the rule goes on while
//
//   S_k^(1 + 1/k) / m > (1 + S_1 + ... + S_k) / (1 + k m).
//
// Nothing is remembered across rounds, so outputs do not depend on batches, and sampling stays lossless: the token just
// drafted stays in the draft. (SpecDec++, Huang et al. 2024, stops by a trained estimate of survival alone, without
// costs.) NaN ends the draft.
#pragma once

#include <vector>

#include "infer/windows/window_rule.h"

namespace draftsmith::infer {

class GoodputWindow : public BoundedWindow {
 public:
  // `token_cost` is m, above 0.
  GoodputWindow(double token_cost, int64_t max_draft) : BoundedWindow(max_draft), token_cost_(token_cost) {}
  static WindowTraits kind() { return {.name = "goodput", .decides = Decides::kAfterToken}; }
  WindowTraits traits() const override { return kind(); }
  void begin(std::span<const Row> rows) override { drafts_.assign(rows.size(), {}); }
  at::Tensor go_on(const DraftStep& step) override;
  void observe(int64_t row, const WindowOutcome& outcome) override;
  void select_rows(std::span<const int64_t> rows) override { keep_rows(drafts_, rows); }

 private:
  // A row's draft so far.
  struct DraftSoFar {
    double survival = 1;  // S_k
    double expected = 1;  // 1 + S_1 + ... + S_k
    int64_t tokens = 0;   // k
  };

  bool pays(const DraftSoFar& draft) const;

  double token_cost_;
  std::vector<DraftSoFar> drafts_;  // [B]
};

}  // namespace draftsmith::infer
