#include "infer/windows/entropy.h"

#include "infer/sampling/draft_features.h"

namespace draftsmith::infer {

at::Tensor EntropyWindow::go_on(const DraftStep& step) {
  return entropy(step.logits).le(most_entropy_);
}

}  // namespace draftsmith::infer
