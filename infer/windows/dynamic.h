// The window `dynamic` of assisted generation, with the schedules of Transformers' `num_assistant_tokens_schedule`:
// `heuristic` and `heuristic_transient` (+2 after a full acceptance, else -1, at least 1) and `constant`. Either may
// also stop after a token of low probability.
//
// `heuristic` keeps its window across texts, as Transformers does across calls of generate(). Each row of a batch
// begins with the mean of the windows that the rows of the batch before ended with, rounded down. So the order of a
// batch's rows has no influence, and with one row a batch the window is Transformers'. `heuristic_transient` begins
// every text anew.
#pragma once

#include <optional>
#include <vector>

#include "base/registry.h"
#include "infer/windows/window_rule.h"

namespace draftsmith::infer {

enum class WindowSchedule { kHeuristic, kHeuristicTransient, kConstant };

// Returns their names in options.
const NamedValues<WindowSchedule>& window_schedules();

struct DynamicWindowOptions {
  int64_t initial = 5;
  WindowSchedule schedule = WindowSchedule::kHeuristic;
  double confidence = 0;  // stops after a token of smaller probability; 0: off
};

class DynamicWindow : public WindowRule {
 public:
  explicit DynamicWindow(DynamicWindowOptions options) : options_(options) {}
  static WindowTraits kind(const DynamicWindowOptions& options);
  WindowTraits traits() const override { return kind(options_); }
  int64_t maximum() const override { return options_.schedule == WindowSchedule::kConstant ? options_.initial : 0; }
  void begin(std::span<const Row> rows) override;
  int64_t length(int64_t row) const override { return windows_[place(row)]; }
  at::Tensor go_on(const DraftStep& step) override;
  void observe(int64_t row, const WindowOutcome& outcome) override;
  void select_rows(std::span<const int64_t> rows) override;
  std::optional<int64_t> carried() const override;
  void carry(std::optional<int64_t> window) override;

 private:
  size_t place(int64_t row) const { return places_[static_cast<size_t>(row)]; }

  DynamicWindowOptions options_;
  std::vector<int64_t> windows_;  // one for each row that the batch began with; between batches those they ended with
  std::vector<size_t> places_;    // [B] each row's index in windows_
};

}  // namespace draftsmith::infer
