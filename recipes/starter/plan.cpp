// The budget of a recipe: how many prompts, which candidate, how long each stage takes.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "recipes/starter/starter.h"

namespace draftsmith::recipes {

namespace {

constexpr int64_t kFewestPrompts = 300;  // to train on
constexpr int64_t kMostPrompts = 20000;  // that a model writes
constexpr double kReserve = 0.9;         // share of the hours that is planned: times are estimates
constexpr double kCountingShare = 0.15;  // of the hours, for counting what held-out prompts give
constexpr double kTimingShare = 0.15;    // and for timing it
constexpr double kWrittenTwice = 1.5;    // prompts that a model writes for each that is kept
constexpr int64_t kOwnTokens = 64;       // of such a prompt

// Each row's source; every row is an alignment or a training of such models that was measured.
constexpr std::array<TrainingDefaults, 4> kDefaults = {{
    {false, 256, 1e-3, 512, "recipes/quickstart.toml"},
    {false, 1 << 30, 7e-4, 2048, "alignment in recipes/dialogsum_bild.toml; of no model as wide as this one"},
    {true, 256, 1e-3, 4096, "recipes/dialogsum_prompts.toml"},
    {true, 1 << 30, 3e-4, 2048, "a third of recipes/dialogsum_prompts.toml's; of no model as wide as this one"},
}};

// What a prompt costs from its writing to the last epoch, seconds.
struct PromptCosts {
  double prompt = 0;
  double answer = 0;
  double training = 0;  // all epochs
  double all() const { return prompt + answer + training; }
};

PromptCosts prompt_costs(const Target& target, const TargetTimes& times, const Candidate& candidate) {
  const double token = times.batch_step / static_cast<double>(kBatch);
  return {.prompt = target.writes_prompts() ? kWrittenTwice * kOwnTokens * token : 0,
          .answer = static_cast<double>(target.max_new_tokens) * token,
          .training = kEpochs * candidate.example_seconds};
}

// Adds what is measured: held-out prompts, a smaller number of them where the hours are few, and the time for it.
void plan_evaluation(const Target& target, const TargetTimes& times, double seconds, StarterPlan& plan) {
  constexpr double kSettings = 5;  // that decode each prompt once: greedy, the same again, and three with a drafter
  const double line = kSettings * static_cast<double>(target.max_new_tokens) * times.step;
  plan.held_out = std::clamp<int64_t>(static_cast<int64_t>(kCountingShare * seconds / line), 20, 200);
  if (!target.writes_prompts()) plan.held_out = std::min(plan.held_out, target.lines / 5);
  plan.timing_minutes = std::clamp(kTimingShare * seconds / 60, 0.05, 10.0);
  plan.evaluation_seconds = line * static_cast<double>(plan.held_out) + 60 * plan.timing_minutes;
}

// Returns how many prompts fit the seconds, and what their stages take.
StarterPlan plan_of(const Target& target, const Measured& measured, const Candidate& candidate, double seconds) {
  StarterPlan plan{.chosen = &candidate};
  plan_evaluation(target, measured.target, seconds, plan);
  const PromptCosts costs = prompt_costs(target, measured.target, candidate);
  const double rest = std::max(0.0, kReserve * seconds - plan.evaluation_seconds);
  const int64_t most = target.writes_prompts() ? kMostPrompts : target.lines - plan.held_out;
  plan.prompts = static_cast<int64_t>(std::min(rest / costs.all(), static_cast<double>(most)));
  const auto prompts = static_cast<double>(plan.prompts);
  plan.prompts_seconds = costs.prompt * (prompts + static_cast<double>(plan.held_out));
  plan.answers_seconds = costs.answer * prompts;
  plan.training_seconds = costs.training * prompts;
  return plan;
}

int64_t fewest_prompts(const Target& target, const StarterPlan& plan) {
  return target.writes_prompts() ? kFewestPrompts : std::min(kFewestPrompts, target.lines - plan.held_out);
}

// Returns hours that suffice for a candidate's least training: evaluations take at most 3 parts of 9 of longer ones.
double needed_hours(const Target& target, const Measured& measured, const StarterPlan& plan) {
  const double prompt = prompt_costs(target, measured.target, *plan.chosen).all();
  const double seconds = plan.evaluation_seconds + prompt * static_cast<double>(fewest_prompts(target, plan));
  return 1.05 * seconds / (kReserve - kCountingShare - kTimingShare) / 3600;
}

// Requires room for corpora, the pruned model, the drafter with its checkpoint (weights, both moments, a copy) and its
// export. Errors: UserError.
void require_disk(const Target& target, const StarterPlan& plan, const std::filesystem::path& out) {
  constexpr uint64_t kCopies = 7;  // of the drafter in fp32
  const auto tokens = static_cast<uint64_t>(2 * plan.prompts * (target.max_new_tokens + target.prompt_tokens));
  const uint64_t needed = kCopies * 4 * static_cast<uint64_t>(plan.chosen->numbers) + 8 * tokens;
  const uint64_t free = disk_free(std::filesystem::absolute(out).parent_path());
  if (free >= needed) return;
  throw UserError({.where = out.string(),
                   .what = "the disk has no room for the models and corpora of the recipe, which lie beside it",
                   .expected = human_bytes(needed),
                   .found = human_bytes(free),
                   .hint = "write the recipe to another disk, and train it there"});
}

}  // namespace

const TrainingDefaults& training_defaults(const model::TransformerConfig& config) {
  return *std::ranges::find_if(kDefaults, [&](const TrainingDefaults& row) {
    return row.scaled_attention == (config.attention_scale != 1) && config.width <= row.widest;
  });
}

StarterPlan make_plan(const Target& target, const Measured& measured, const StarterOptions& options) {
  std::optional<StarterPlan> best;
  double fewest_hours = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : measured.candidates) {
    if (candidate.vocabulary > 0 && !options.prune_vocabulary) continue;
    const StarterPlan plan = plan_of(target, measured, candidate, 3600 * options.hours);
    fewest_hours = std::min(fewest_hours, needed_hours(target, measured, plan));
    if (plan.prompts < fewest_prompts(target, plan)) continue;
    const auto promise = [](const Candidate& one) { return one.speedup(one.alpha); };
    if (!best || promise(candidate) > promise(*best->chosen)) best = plan;
  }
  if (!best) {
    throw UserError({.where = "--hours",
                     .what = "the hours are too few to train any drafter and to measure it",
                     .expected = fmt::format("{:.2g} or more on this machine", fewest_hours),
                     .found = fmt::format("{:g}", options.hours)});
  }
  require_disk(target, *best, options.out);
  return *best;
}

}  // namespace draftsmith::recipes
