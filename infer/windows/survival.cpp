#include "infer/windows/survival.h"

namespace draftsmith::infer {

void SurvivalWindow::begin(std::span<const Row> rows) {
  RoutedWindow::begin(rows);
  survival_.assign(rows.size(), 1);
}

at::Tensor SurvivalWindow::go_on(const DraftStep& step) {
  const at::Tensor accepted = acceptance(step).to(at::kCPU, at::kDouble).contiguous();  // [B]
  at::Tensor answers = at::zeros({accepted.numel()}, at::kBool);
  for (int64_t b = 0; b < accepted.numel(); ++b) {
    if (!step.asks(b)) continue;
    double& survival = survival_[static_cast<size_t>(b)];
    survival *= accepted.const_data_ptr<double>()[b];
    answers.mutable_data_ptr<bool>()[b] = 1 - survival <= max_risk_;
  }
  return answers.to(step.logits.device());
}

void SurvivalWindow::observe(int64_t row, const WindowOutcome& outcome) {
  RoutedWindow::observe(row, outcome);
  survival_[static_cast<size_t>(row)] = 1;
}

void SurvivalWindow::select_rows(std::span<const int64_t> rows) {
  RoutedWindow::select_rows(rows);
  keep_rows(survival_, rows);
}

}  // namespace draftsmith::infer
