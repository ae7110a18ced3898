// The window `fallback` of BiLD (Kim et al., §3.3): the drafter goes on while its largest probability is at least
// alpha_FB, for at most `max_draft` tokens in a row. It decides before the next token is taken. NaN lets the drafter go
// on, so that choosing the token finds it.
#pragma once

#include "infer/sampling/sampling.h"
#include "infer/windows/row_answers.h"
#include "infer/windows/window_rule.h"

namespace draftsmith::infer {

class FallbackWindow : public BoundedWindow {
 public:
  FallbackWindow(double threshold, int64_t max_draft) : BoundedWindow(max_draft), threshold_(threshold) {}
  static WindowTraits kind() { return {.name = "fallback", .decides = Decides::kBeforeToken}; }
  WindowTraits traits() const override { return kind(); }
  at::Tensor go_on(const DraftStep& step) override {
    // At thresholds of at most 0 or above 1 the answer must not depend on a rounding error.
    if (threshold_ <= 0 || threshold_ > 1) {
      return at::full({step.logits.size(0)}, threshold_ <= 0, step.logits.options().dtype(at::kBool));
    }
    const at::Tensor sure = confidence(step.logits);  // [B]
    if (!sure.is_cpu()) return sure.lt(threshold_).logical_not();
    return row_answers(sure, [this](auto value) { return !(value < static_cast<decltype(value)>(threshold_)); });
  }

 private:
  double threshold_;
};

}  // namespace draftsmith::infer
