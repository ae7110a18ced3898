// The window `entropy`: drafting ends after a token whose distribution has an entropy above a threshold. It is the
// untrained baseline of the window `router` and decides at the same point: the drafter has run for the token already,
// so leaving it out would waste the run.
#pragma once

#include "infer/sampling/draft_features.h"
#include "infer/windows/row_answers.h"
#include "infer/windows/window_rule.h"

namespace draftsmith::infer {

class EntropyWindow : public BoundedWindow {
 public:
  // `most_entropy` in nats.
  EntropyWindow(double most_entropy, int64_t max_draft) : BoundedWindow(max_draft), most_entropy_(most_entropy) {}
  static WindowTraits kind() { return {.name = "entropy", .decides = Decides::kAfterToken}; }
  WindowTraits traits() const override { return kind(); }
  at::Tensor go_on(const DraftStep& step) override {
    const at::Tensor nats = entropy(step.logits);  // [B]
    if (!nats.is_cpu()) return nats.le(most_entropy_);
    return row_answers(nats, [this](double value) { return value <= most_entropy_; });
  }

 private:
  double most_entropy_;
};

}  // namespace draftsmith::infer
