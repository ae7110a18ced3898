#include "infer/windows/router.h"

#include <ATen/Dispatch.h>

#include "base/device_tensors.h"
#include "infer/sampling/draft_features.h"
#include "infer/sampling/row_kernels.h"

namespace draftsmith::infer {

RouterWindow::RouterWindow(const model::RouterPredictor& router, double threshold, int64_t max_draft)
    : BoundedWindow(max_draft),
      router_(router),
      threshold_(threshold),
      probabilities_(static_cast<size_t>(router.config().top_k)),
      ids_(probabilities_.size()) {}

at::Tensor RouterWindow::go_on(const DraftStep& step) {
  if (!step.logits.is_cpu()) {
    return (1 - router_.disagreement(router_features(step.logits, router_.config().top_k))).ge(threshold_);  // [B]
  }
  const at::Tensor logits = promoted(step.logits).contiguous();  // [B,V]
  at::Tensor answers = host_empty({logits.size(0)}, at::kBool);
  AT_DISPATCH_FLOATING_TYPES(logits.scalar_type(), "router_window", [&] {
    for (int64_t b = 0; b < logits.size(0); ++b) {
      bool& answer = answers.mutable_data_ptr<bool>()[b];
      answer = false;
      if (!step.asks(b)) continue;
      const double entropy = router_features(logits.const_data_ptr<scalar_t>() + b * logits.size(1), logits.size(1),
                                             std::span(probabilities_), std::span(ids_));
      answer = 1 - router_.disagreement(entropy, probabilities_, ids_) >= threshold_;
    }
  });
  return answers;
}

}  // namespace draftsmith::infer
