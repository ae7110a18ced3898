#include "infer/windows/window_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include <ATen/Dispatch.h>

#include "infer/decode_options.h"
#include "infer/load_models.h"
#include "infer/sampling/row_kernels.h"

namespace draftsmith::infer {
namespace {

// Returns -sum p ln p, where 0 ln 0 = 0: [N,V] -> [N].
at::Tensor entropy_of(const at::Tensor& log_probabilities) {
  const at::Tensor p = log_probabilities.exp();
  return -(p * at::where(p.gt(0), log_probabilities, at::zeros_like(p))).sum(-1);
}

}  // namespace

template <class T>
double router_features(const T* logits, int64_t vocabulary, std::span<float> probabilities, std::span<int64_t> ids) {
  const auto k = static_cast<int64_t>(ids.size());
  const int64_t found = row_top(logits, vocabulary, k, ids.data());
  const EntropySums sums = row_entropy_sums(logits, vocabulary);
  for (int64_t i = 0; i < k; ++i) {
    const auto slot = static_cast<size_t>(i);
    if (i >= found) ids[slot] = -1;
    probabilities[slot] =
        i < found ? static_cast<float>(std::exp(static_cast<double>(logits[ids[slot]]) - sums.highest) / sums.total)
                  : 0.0F;
  }
  return sums.entropy();
}

template double router_features<float>(const float*, int64_t, std::span<float>, std::span<int64_t>);
template double router_features<double>(const double*, int64_t, std::span<float>, std::span<int64_t>);

at::Tensor entropy(const at::Tensor& logits) {
  if (!logits.is_cpu()) return entropy_of(at::log_softmax(logits.to(at::kFloat), -1));
  const at::Tensor rows = promoted(logits).contiguous();
  at::Tensor values = host_empty({rows.size(0)}, at::kDouble);
  AT_DISPATCH_FLOATING_TYPES(rows.scalar_type(), "entropy", [&] {
    for (int64_t n = 0; n < rows.size(0); ++n) {
      values.mutable_data_ptr<double>()[n] =
          row_entropy_sums(rows.const_data_ptr<scalar_t>() + n * rows.size(1), rows.size(1)).entropy();
    }
  });
  return values;
}

model::RouterFeatures router_features(const at::Tensor& logits, int64_t k) {
  const at::Tensor log_p = at::log_softmax(logits.to(at::kFloat), -1);
  const auto [values, ids] = log_p.topk(std::min(k, log_p.size(1)), -1);  // [N,k]
  const at::Tensor known = values.gt(-std::numeric_limits<float>::infinity());
  const int64_t missing = k - values.size(1);
  return {entropy_of(log_p), at::constant_pad_nd(at::where(known, values.exp(), 0), {0, missing}),
          at::constant_pad_nd(at::where(known, ids, -1), {0, missing}, -1)};
}

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

void RecordingWindow::begin(std::span<const Row> rows) {
  keys_.clear();
  for (const Row& row : rows) {
    keys_.push_back(AcceptedLengths::key_of(row));
    record_.lengths.try_emplace(keys_.back());  // of an output that fails in its first window, too
  }
  accepted_.assign(rows.size(), {});
}

void RecordingWindow::observe(int64_t row, const WindowOutcome& outcome) {
  const auto b = static_cast<size_t>(row);
  accepted_[b].push_back(outcome.accepted);
  record_.lengths[keys_[b]] = accepted_[b];
}

void RecordingWindow::select_rows(std::span<const int64_t> rows) {
  keep_rows(keys_, rows);
  keep_rows(accepted_, rows);
}

void OracleWindow::begin(std::span<const Row> rows) {
  rows_.clear();
  for (const Row& row : rows) {
    const auto found = record_.lengths.find(AcceptedLengths::key_of(row));
    if (found == record_.lengths.end()) throw std::logic_error("an oracle window without a record of this output");
    rows_.push_back({&found->second, 0});
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

namespace {

using O = DecodeOptions;
using M = GenerationModels;
using MadeWindow = std::unique_ptr<WindowRule>;

struct WindowRuleEntry {
  std::string name;
  WindowTraits (*traits)(const O&);
  MadeWindow (*make)(const O&, const M&);
};

template <class Rule>
WindowTraits kind_of_rule(const O&) {
  return Rule::kind();
}

DynamicWindowOptions dynamic_options(const O& options) {
  const WindowSchedule schedule = window_schedules().at(options.schedule);
  const bool constant = schedule == WindowSchedule::kConstant;
  return {options.window.value_or(constant ? 20 : 5), schedule, options.confidence.value_or(constant ? 0.4 : 0)};
}

MadeWindow router_window(const O& options, const M& models) {
  if (models.router == nullptr) throw UserError(missing_router("window router"));
  const model::RouterConfig& config = models.router->config();
  return std::make_unique<RouterWindow>(*models.router, options.threshold.value_or(config.threshold),
                                        options.max_draft.value_or(config.max_draft));
}

MadeWindow oracle_window(const O& options, const M& models) {
  if (models.accepted_lengths == nullptr) {
    throw UserError({.where = "window oracle",
                     .what = "knows where the next rejection is only from an earlier run",
                     .expected = "an evaluation, which makes that run",
                     .found = "none",
                     .hint = "use window_rule = \"oracle\" in a suite of `draftsmith eval`"});
  }
  return std::make_unique<OracleWindow>(options.longest_draft(), *models.accepted_lengths);
}

const Registry<WindowRuleEntry>& window_rules() {
  static const Registry<WindowRuleEntry> kRules(
      "window rule",
      {{"fixed", kind_of_rule<FixedWindow>,
        [](const O& o, const M&) -> MadeWindow { return std::make_unique<FixedWindow>(o.fixed_window()); }},
       {"fallback", kind_of_rule<FallbackWindow>,
        [](const O& o, const M&) -> MadeWindow {
          return std::make_unique<FallbackWindow>(o.fallback, o.longest_draft());
        }},
       {"dynamic", [](const O& o) { return DynamicWindow::kind(dynamic_options(o)); },
        [](const O& o, const M&) -> MadeWindow { return std::make_unique<DynamicWindow>(dynamic_options(o)); }},
       {"entropy", kind_of_rule<EntropyWindow>,
        [](const O& o, const M&) -> MadeWindow {
          return std::make_unique<EntropyWindow>(o.max_entropy, o.longest_draft());
        }},
       {"router", kind_of_rule<RouterWindow>, router_window},
       {"oracle", kind_of_rule<OracleWindow>, oracle_window}});
  return kRules;
}

}  // namespace

std::vector<std::string> window_rule_names() {
  return window_rules().names();
}

WindowTraits window_traits(const DecodeOptions& options) {
  return window_rules().at(options.window_rule_name()).traits(options);
}

std::unique_ptr<WindowRule> make_window_rule(const DecodeOptions& options, const GenerationModels& models) {
  return window_rules().at(options.window_rule_name()).make(options, models);
}

Problem missing_router(const std::string& where) {
  return {.where = where,
          .what = "this window rule asks a router, and none was given",
          .expected = "the directory of a router",
          .found = "none",
          .hint = "give --router DIR (router = \"DIR\" in a suite), made by a stage of kind router"};
}

Problem router_needs_model(const std::string& where, const std::string& drafter) {
  return {.where = where,
          .what = "a router is trained for a drafter that is a model of its own",
          .expected = "a model, a Tandem secondary or a features drafter",
          .found = drafter.empty() ? "none" : drafter,
          .hint = "the windows dynamic, entropy and fallback need no router"};
}

}  // namespace draftsmith::infer
