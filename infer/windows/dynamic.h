// The window `dynamic` of assisted generation, with Transformers' schedules: `heuristic` (+2 after a full acceptance,
// else -1, at least 1) and `constant`. Either may also stop after a token of low probability.
#pragma once

#include <vector>

#include "infer/windows/window_rule.h"

namespace draftsmith::infer {

struct DynamicWindowOptions {
  int64_t initial = 5;
  bool heuristic = true;
  double confidence = 0;  // stops after a token of smaller probability; 0: off
};

class DynamicWindow : public WindowRule {
 public:
  explicit DynamicWindow(DynamicWindowOptions options) : options_(options) {}
  static WindowTraits kind(const DynamicWindowOptions& options);
  WindowTraits traits() const override { return kind(options_); }
  int64_t maximum() const override { return options_.heuristic ? 0 : options_.initial; }
  void begin(std::span<const Row> rows) override;
  int64_t length(int64_t row) const override { return windows_[static_cast<size_t>(row)]; }
  at::Tensor go_on(const DraftStep& step) override;
  void observe(int64_t row, int64_t drafted, int64_t accepted) override;
  void select_rows(std::span<const int64_t> rows) override;

 private:
  DynamicWindowOptions options_;
  std::vector<int64_t> windows_;  // [B]
};

}  // namespace draftsmith::infer
