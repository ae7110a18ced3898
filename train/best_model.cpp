#include "train/best_model.h"

#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"

namespace draftsmith::train {

namespace {

constexpr const char* kBest = "best";

}  // namespace

std::filesystem::path best_directory(const std::filesystem::path& run, int64_t step) {
  return run / fmt::format("{}-{:09}", kBest, step);
}

bool count_validation(TrainingState& state, double value, const std::string& measure) {
  const bool lower_is_better = measure == "loss";
  const bool better = !state.best_value || (lower_is_better ? value < *state.best_value : value > *state.best_value);
  ++state.validations;
  if (better) {
    state.best_value = value;
    state.best_step = state.step;
    state.since_best = 0;
  } else {
    ++state.since_best;
  }
  return better;
}

void keep_best_only(const std::filesystem::path& run, int64_t step) {
  const std::filesystem::path kept = best_directory(run, step);
  replace_link(run / kBest, kept);
  for (const auto& entry : std::filesystem::directory_iterator(run)) {
    const std::string name = entry.path().filename().string();
    const bool old = name.starts_with(std::string(kBest) + "-") && entry.path() != kept;
    if (old && !entry.is_symlink()) std::filesystem::remove_all(entry.path());
  }
}

void require_finite_measure(double value, const std::string& measure, int64_t step, const std::string& where) {
  if (std::isfinite(value)) return;
  throw RunError({.where = where,
                  .what = fmt::format("the validation's {} is not finite after training step {}", measure, step),
                  .expected = "a finite number",
                  .found = fmt::format("{}", value),
                  .hint = "lower the learning rate, warm up longer or clip. The last checkpoint is unharmed"});
}

}  // namespace draftsmith::train
