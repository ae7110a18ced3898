// The window `fallback` of BiLD (Kim et al., §3.3): the drafter goes on while its largest probability is at least
// alpha_FB, decided before its token is chosen, and at most `max_draft` tokens in a row.
#pragma once

#include "infer/windows/window_rule.h"

namespace draftsmith::infer {

class FallbackWindow : public WindowRule {
 public:
  FallbackWindow(double threshold, int64_t max_draft) : threshold_(threshold), max_draft_(max_draft) {}
  WindowTraits traits() const override;
  int64_t maximum() const override { return max_draft_; }
  void begin(std::span<const Row>) override {}
  int64_t length(int64_t) const override { return max_draft_; }
  at::Tensor go_on(const DraftStep& step) override;
  void observe(int64_t, int64_t, int64_t) override {}
  void select_rows(std::span<const int64_t>) override {}

 private:
  double threshold_;
  int64_t max_draft_;
};

}  // namespace draftsmith::infer
