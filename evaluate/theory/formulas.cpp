#include "evaluate/theory/formulas.h"

#include <stdexcept>
#include <utility>
#include <vector>

namespace draftsmith::evaluate {
namespace {

void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

void check_acceptance(double rate, int64_t window) {
  require(rate >= 0 && rate <= 1, "an acceptance rate is in 0 .. 1");
  require(window >= 0, "a draft window is at least 0");
}

// Returns the time of an iteration that drafts `window` tokens, in the unit of `costs`.
double iteration_time(int64_t window, const infer::StepCosts& costs) {
  return costs.drafting(static_cast<double>(window)) +
         costs.target.at(0) * costs.relative_target(static_cast<double>(window + 1));
}

// Returns the target's runs of an output of `length` tokens.
double expected_runs(double alpha, int64_t window, int64_t length) {
  std::vector<double> runs(static_cast<size_t>(length) + 1);  // by the tokens that are left
  for (size_t left = 1; left < runs.size(); ++left) {
    double all_accepted = 1;
    runs[left] = 1;
    for (size_t accepted = 0; accepted + 1 < left && std::cmp_less_equal(accepted, window); ++accepted) {
      const double ends_here = std::cmp_equal(accepted, window) ? 1 : 1 - alpha;
      runs[left] += all_accepted * ends_here * runs[left - accepted - 1];
      all_accepted *= alpha;
    }
  }
  return runs.back();
}

}  // namespace

double expected_tokens(double alpha, int64_t window, int64_t length) {
  check_acceptance(alpha, window);
  require(length >= 0, "an output has no negative length");
  if (length > 0) return static_cast<double>(length) / expected_runs(alpha, window, length);
  // A sum, since (1 - alpha^(G+1)) / (1 - alpha) loses all digits near alpha = 1.
  double tokens = 1;
  for (int64_t drafted = 0; drafted < window; ++drafted) tokens = 1 + alpha * tokens;
  return tokens;
}

double walltime_improvement(double alpha, int64_t window, const infer::StepCosts& costs, int64_t length) {
  return expected_tokens(alpha, window, length) * costs.target.at(0) / iteration_time(window, costs);
}

double operations_factor(double alpha, int64_t window, double operations_ratio) {
  require(operations_ratio >= 0, "a ratio of operations is at least 0");
  const auto drafted = static_cast<double>(window);
  return (drafted * operations_ratio + drafted + 1) / expected_tokens(alpha, window);
}

BestWindow best_window(double alpha, const infer::StepCosts& costs, int64_t max_window, int64_t length) {
  BestWindow best;
  for (int64_t window = 1; window <= max_window; ++window) {
    const double speedup = walltime_improvement(alpha, window, costs, length);
    if (speedup > best.speedup) best = {window, speedup};
  }
  return best;
}

std::optional<double> break_even_alpha(const infer::StepCosts& costs, int64_t max_window, int64_t length) {
  const auto pays = [&](double alpha) { return best_window(alpha, costs, max_window, length).window > 0; };
  if (!pays(1)) return std::nullopt;
  double below = 0;
  double above = 1;
  for (int i = 0; i < 30; ++i) {
    const double middle = (below + above) / 2;
    (pays(middle) ? above : below) = middle;
  }
  return above;
}

SpecGameLatency specgame_latency(double acceptance, int64_t draft_tokens, const infer::StepCosts& costs) {
  const double iteration = iteration_time(draft_tokens, costs);
  // Begins with the innermost term: `mean` is 1 / (n + 1) averaged over iterations that accept i or more tokens.
  double mean = 1 / static_cast<double>(draft_tokens + 1);
  for (int64_t i = draft_tokens - 1; i >= 0; --i) {
    mean = (1 - acceptance) / static_cast<double>(i + 1) + acceptance * mean;
  }
  return {iteration * mean, iteration / expected_tokens(acceptance, draft_tokens)};
}

double ppd_latency(int64_t layers, int64_t early_layer, double match_rate) {
  require(layers >= 1 && early_layer <= layers && 2 * early_layer >= layers,
          "PPD predicts at a layer of the upper half (Theorem 4.1)");
  require(match_rate >= 0 && match_rate <= 1, "a match rate is in 0 .. 1");
  return static_cast<double>(layers) - static_cast<double>(layers - early_layer) * match_rate;
}

}  // namespace draftsmith::evaluate
