#include "infer/windows/window_rules.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include <ATen/Dispatch.h>

#include "base/device_tensors.h"
#include "infer/sampling/draft_features.h"
#include "infer/sampling/row_kernels.h"
#include "infer/sampling/sampling.h"

namespace draftsmith::infer {

const NamedValues<WindowSchedule>& window_schedules() {
  static const NamedValues<WindowSchedule> kSchedules("schedule",
                                                      {{"heuristic", WindowSchedule::kHeuristic},
                                                       {"heuristic_transient", WindowSchedule::kHeuristicTransient},
                                                       {"constant", WindowSchedule::kConstant}});
  return kSchedules;
}

WindowTraits DynamicWindow::kind(const DynamicWindowOptions& options) {
  return {.name = "dynamic",
          .decides = options.confidence > 0 ? Decides::kAfterToken : Decides::kUpFront,
          .carries = options.schedule == WindowSchedule::kHeuristic};
}

void DynamicWindow::begin(std::span<const Row> rows) {
  windows_.assign(rows.size(), carried().value_or(options_.initial));
  places_.resize(rows.size());
  std::iota(places_.begin(), places_.end(), size_t{0});
}

at::Tensor DynamicWindow::go_on(const DraftStep& step) {
  const at::Tensor sure = token_log_probability(step.logits, step.tokens);  // [B]
  const double least = std::log(options_.confidence);
  if (!sure.is_cpu()) return sure.ge(least);
  return row_answers(sure, [least](auto value) { return value >= static_cast<decltype(value)>(least); });
}

// Transformers counts a full acceptance if the target's own token follows the whole draft, so it does not count a draft
// whose EOS is accepted. It counts an empty draft one token before the length limit. A draft may also be empty because
// the drafter found nothing to propose, and then the window stays.
void DynamicWindow::observe(int64_t row, const WindowOutcome& outcome) {
  if (options_.schedule == WindowSchedule::kConstant || !outcome.judged) return;
  if (outcome.drafted == 0 && !outcome.at_limit) return;
  int64_t& window = windows_[place(row)];
  const bool full = outcome.accepted == outcome.drafted && !outcome.cut;
  window = full ? window + 2 : std::max<int64_t>(1, window - 1);
}

void DynamicWindow::select_rows(std::span<const int64_t> rows) {
  keep_rows(places_, rows);
}

std::optional<int64_t> DynamicWindow::carried() const {
  if (options_.schedule != WindowSchedule::kHeuristic || windows_.empty()) return std::nullopt;
  return std::accumulate(windows_.begin(), windows_.end(), int64_t{0}) / std::ssize(windows_);
}

void DynamicWindow::carry(std::optional<int64_t> window) {
  windows_.clear();
  if (window) windows_.push_back(*window);
}

AcceptedLengths::Key AcceptedLengths::key_of(const Row& row) {
  Key key = row.source;
  key.push_back(-1);
  key.insert(key.end(), row.tokens.begin(), row.tokens.begin() + row.prefix);
  key.push_back(row.limit);
  return key;
}

const std::vector<int64_t>* AcceptedLengths::find(const Key& key) const {
  const auto found = lengths_.find(key);
  return found == lengths_.end() ? nullptr : &found->second;
}

void RecordingWindow::begin(std::span<const Row> rows) {
  keys_.clear();
  for (const Row& row : rows) keys_.push_back(AcceptedLengths::key_of(row));
  accepted_.assign(rows.size(), {});
}

void RecordingWindow::observe(int64_t row, const WindowOutcome& outcome) {
  const auto b = static_cast<size_t>(row);
  accepted_[b].push_back(outcome.accepted);
  record_.set(keys_[b], accepted_[b]);
}

void RecordingWindow::select_rows(std::span<const int64_t> rows) {
  keep_rows(keys_, rows);
  keep_rows(accepted_, rows);
}

void OracleWindow::begin(std::span<const Row> rows) {
  rows_.clear();
  for (const Row& row : rows) {
    rows_.push_back({record_.find(AcceptedLengths::key_of(row)), 0});
    if (rows_.back().lengths == nullptr) throw std::logic_error("an oracle window without a record of this output");
  }
}

int64_t OracleWindow::length(int64_t row) const {
  const Replay& replay = rows_[static_cast<size_t>(row)];
  return replay.next < replay.lengths->size() ? (*replay.lengths)[replay.next] : 0;
}

void OracleWindow::observe(int64_t row, const WindowOutcome&) {
  ++rows_[static_cast<size_t>(row)].next;
}

void OracleWindow::select_rows(std::span<const int64_t> rows) {
  keep_rows(rows_, rows);
}

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
