#include "infer/windows/fallback.h"

#include "infer/sampling/sampling.h"

namespace draftsmith::infer {

WindowTraits FallbackWindow::traits() const {
  return {.name = "fallback", .decides = Decides::kBeforeToken, .needs_confidence = true};
}

at::Tensor FallbackWindow::go_on(const DraftStep& step) {
  // At a threshold of 0 or above 1 the answer must not hang on a rounding error.
  if (threshold_ <= 0 || threshold_ > 1) {
    return at::full({step.logits.size(0)}, threshold_ <= 0, step.logits.options().dtype(at::kBool));
  }
  return confidence(step.logits).ge(threshold_);
}

}  // namespace draftsmith::infer
