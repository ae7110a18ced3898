#include "infer/windows/fallback.h"

#include "infer/sampling/sampling.h"

namespace draftsmith::infer {

at::Tensor FallbackWindow::go_on(const DraftStep& step) {
  // At thresholds of at most 0 or above 1 the answer must not depend on a rounding error.
  if (threshold_ <= 0 || threshold_ > 1) {
    return at::full({step.logits.size(0)}, threshold_ <= 0, step.logits.options().dtype(at::kBool));
  }
  return confidence(step.logits).ge(threshold_);
}

}  // namespace draftsmith::infer
