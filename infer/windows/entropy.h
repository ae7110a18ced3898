// The window `entropy`: drafting ends, keeping the token just drafted, when the entropy of the distribution it was
// taken from exceeds a threshold. What a router must beat without being trained. It decides after the token is kept, as
// the router does: the drafter has run for that token already, so leaving it out would only waste the run.
#pragma once

#include "infer/windows/window_rule.h"

namespace draftsmith::infer {

class EntropyWindow : public WindowRule {
 public:
  // `most_entropy` in nats.
  EntropyWindow(double most_entropy, int64_t max_draft) : most_entropy_(most_entropy), max_draft_(max_draft) {}
  WindowTraits traits() const override;
  int64_t maximum() const override { return max_draft_; }
  void begin(std::span<const Row>) override {}
  int64_t length(int64_t) const override { return max_draft_; }
  at::Tensor go_on(const DraftStep& step) override;
  void observe(int64_t, int64_t, int64_t) override {}
  void select_rows(std::span<const int64_t>) override {}

 private:
  double most_entropy_;
  int64_t max_draft_;
};

}  // namespace draftsmith::infer
