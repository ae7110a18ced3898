#include "evaluate/theory/explanation.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "evaluate/theory/formulas.h"

namespace draftsmith::evaluate {
namespace {

constexpr double kMoreAlpha = 0.05;
constexpr int kHalvings = 50;  // of the interval of alpha: beyond the precision of a double

double a_round(int64_t count, int64_t rounds) {
  return rounds > 0 ? static_cast<double>(count) / static_cast<double>(rounds) : 0;
}

// Returns expected_tokens(), linear between whole windows.
double tokens_of(double alpha, double window) {
  const auto below = static_cast<int64_t>(std::floor(window));
  const double share = window - static_cast<double>(below);
  return (1 - share) * expected_tokens(alpha, below) + share * expected_tokens(alpha, below + 1);
}

// Times of the parts of a round with the mean number of drafts.
struct RoundCosts {
  double drafting = 0;
  double verification = 0;
  double total() const { return drafting + verification; }
};

RoundCosts round_costs(const TimedRuns& runs, const infer::StepCosts& costs) {
  if (runs.target_runs <= 0 || runs.tokens <= 0 || costs.target.empty()) {
    throw std::invalid_argument("an explanation needs runs of the target, tokens and times of steps");
  }
  return {costs.drafting(runs.drafts_a_round()), costs.target[0] * costs.relative_target(runs.width_of_a_round())};
}

}  // namespace

double TimedRuns::tokens_a_round() const {
  return a_round(tokens, target_runs);
}

double TimedRuns::drafts_a_round() const {
  return a_round(draft_runs, target_runs);
}

double TimedRuns::width_of_a_round() const {
  return a_round(target_tokens, target_runs);
}

double effective_alpha(const TimedRuns& runs) {
  double low = 0, high = 1;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (tokens_of(middle, runs.drafts_a_round()) < runs.tokens_a_round() ? low : high) = middle;
  }
  return (low + high) / 2;
}

Improvements improvements(const TimedRuns& runs, const TimedWork& own, const TimedWork& baseline, double speedup,
                          const infer::StepCosts& costs) {
  const RoundCosts round = round_costs(runs, costs);
  const double total = own.seconds.total();
  const double decode = own.seconds.decode();
  // Returns the speedup if decoding takes so much of its time.
  const auto with = [&](double share) { return speedup * total / (total - decode + decode * share); };
  const double alpha = effective_alpha(runs);
  const double window = runs.drafts_a_round();
  Improvements result;
  result.more_alpha = with(tokens_of(alpha, window) / tokens_of(std::min(alpha + kMoreAlpha, 1.0), window));
  result.half_draft = with((round.drafting / 2 + round.verification) / round.total());
  const double one_token = std::min(costs.target[0], round.verification);
  result.free_verification = with((round.drafting + one_token) / round.total());
  const double baseline_total = baseline.seconds.total();
  result.no_encoder =
      speedup * total / (total - own.seconds.encode) * (baseline_total - baseline.seconds.encode) / baseline_total;
  return result;
}

SpeedGap speed_gap(const TimedRuns& runs, const TimedWork& own, const infer::StepCosts& costs,
                   std::optional<double> predicted) {
  const RoundCosts round = round_costs(runs, costs);
  const double tokens = static_cast<double>(own.tokens);
  const double rounds = 1 / runs.tokens_a_round();  // a token
  const double waits = own.seconds.total() > 0 ? std::clamp(own.waited / own.seconds.total(), 0.0, 1.0) : 0;
  const auto running = [&](double seconds) { return (1 - waits) * seconds / tokens; };
  const double accounted = rounds * round.total();
  SpeedGap gap;
  gap.predicted = predicted.value_or(accounted);
  gap.measured = own.seconds.decode() / tokens;
  if (predicted) gap.acceptance = accounted - *predicted;
  gap.drafting = running(own.seconds.draft) - rounds * round.drafting;
  gap.verification = running(own.seconds.verify) - rounds * round.verification;
  gap.cache = running(own.seconds.other - own.overhead);
  gap.waiting = waits * own.seconds.decode() / tokens;
  gap.other = running(own.overhead);
  return gap;
}

}  // namespace draftsmith::evaluate
