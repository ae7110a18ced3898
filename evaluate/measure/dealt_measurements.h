// Measurements that are not timed: counts, qualities and outputs. They are dealt out to the processes of a job and
// depend on neither their number nor on which of them measures what.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "evaluate/measure/context.h"
#include "evaluate/measure/measurement_store.h"

namespace draftsmith::evaluate {

// Hint in the message of an evaluation that was stopped.
inline constexpr const char* kHowToGoOn = "finished measurements are kept; run the evaluation again to go on";

struct Measurement {
  std::string name;  // measurement_name()
  int64_t size = 1;  // in the unit of the progress
  std::function<nlohmann::json()> measure;
  // What fails with an exception of `measure` (MeasurementStore::failure()), such as a setting: its other measurements
  // are left out, and the evaluation goes on. Empty: the exception ends it.
  std::string owner = {};
};

// Measurements that one process makes in this order: each may read the ones before it from the store.
using Chain = std::vector<Measurement>;

struct DealtMeasurements {
  std::string title;  // of the progress; empty: none is shown
  std::string unit;
  std::vector<Chain> chains;
};

// Makes the measurements that the store lacks; then the store of every process has all, or their owners' failures. All
// processes call it with the same measurements. Errors: those of `measure` without an owner, Interrupted, RunError if
// measurements of other processes do not arrive, and as World::gather().
void measure_missing(const DealtMeasurements& dealt, MeasurementStore& store, const SuiteContext& context);

}  // namespace draftsmith::evaluate
