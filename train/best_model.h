// The best model of a run so far, by its validations.
//
//   RUN/best-000000800/, best     the model directory after that step, and a link to it
#pragma once

#include <filesystem>
#include <string>

#include "train/training_state.h"

namespace draftsmith::train {

// Returns the directory of a run's best model after `step`.
std::filesystem::path best_directory(const std::filesystem::path& run, int64_t step);

// Counts a validation in the state. Returns whether its value is the best so far of a measure (ValidationOptions).
bool count_validation(TrainingState& state, double value, const std::string& measure);

// Points `best` to the best model after `step` and removes older ones.
void keep_best_only(const std::filesystem::path& run, int64_t step);

// Throws RunError unless the value of a measure is finite; `where` names the validation corpus.
void require_finite_measure(double value, const std::string& measure, int64_t step, const std::string& where);

}  // namespace draftsmith::train
