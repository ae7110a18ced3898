// What a training checkpoint says about its run, so that the run is not mixed up with another one, and a later run with
// other settings can continue it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "train/options.h"
#include "train/trainer_inputs.h"

namespace draftsmith::train {

struct RunRecord {
  std::string identity = {};                          // hash of what the run computes
  int64_t threads = 0;                                // of the processor
  nlohmann::ordered_json training = {};               // the resolved TrainOptions that change the result
  std::map<std::string, std::string> inputs = {};     // inputs that decide how training goes on, by option
  std::map<std::string, std::string> validated = {};  // inputs of the validation, by option
};

// Returns the record of a run of this process.
RunRecord record_run(const TrainerInputs& inputs, const TrainOptions& options);

void to_json(nlohmann::ordered_json& json, const RunRecord& record);
// Adds a problem at `where` for missing keys and keys of other types.
RunRecord run_record_from_json(const nlohmann::json& json, const std::string& where, Problems& problems);

// Reports a problem for each setting and input of `own` that must be as in the parent and is not. Length, learning
// rate, schedule, clipping, precision, reduce_dtype, non-finite steps, validation and `keep` may differ.
void check_continues(const RunRecord& own, const RunRecord& parent, Problems& problems);

// Returns whether both runs validate alike, so that their measures can be compared.
bool validate_alike(const RunRecord& own, const RunRecord& parent);

}  // namespace draftsmith::train
