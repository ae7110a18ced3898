#include "infer/windows/goodput.h"

#include <cmath>

#include "infer/sampling/sampling.h"

namespace draftsmith::infer {

bool GoodputWindow::pays(const DraftSoFar& draft) const {
  const auto k = static_cast<double>(draft.tokens);
  const double next = std::pow(draft.survival, 1 + 1 / k);
  return next * (1 + k * token_cost_) > token_cost_ * draft.expected;
}

at::Tensor GoodputWindow::go_on(const DraftStep& step) {
  const at::Tensor sure =
      token_log_probability(step.logits, step.tokens).to(at::kCPU, at::kDouble).contiguous();  // [B]
  at::Tensor answers = at::zeros({sure.numel()}, at::kBool);
  for (int64_t b = 0; b < sure.numel(); ++b) {
    if (!step.asks(b)) continue;
    DraftSoFar& draft = drafts_[static_cast<size_t>(b)];
    draft.survival *= std::exp(sure.const_data_ptr<double>()[b]);
    draft.expected += draft.survival;
    ++draft.tokens;
    answers.mutable_data_ptr<bool>()[b] = pays(draft);
  }
  return answers.to(step.logits.device());
}

void GoodputWindow::observe(int64_t row, const WindowOutcome& /*outcome*/) {
  drafts_[static_cast<size_t>(row)] = {};
}

}  // namespace draftsmith::infer
