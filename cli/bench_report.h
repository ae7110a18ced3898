// The output of `draftsmith bench`: the measured speed of a model beside its machine's rates.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "infer/costs/model_speed.h"
#include "infer/costs/step_curve.h"

namespace draftsmith::cli {

struct BenchReport {
  infer::SpeedQuestion question;
  infer::ModelSpeed speed;
  infer::StepCurve curve;    // of the steps' medians, with model and machine
  std::string architecture;  // "t5, 6 decoder layers of width 512, vocabulary 32128"
  std::string device;        // "cpu", "cuda:0"
};

// Returns the tables, with headings and notes.
std::string bench_text(const BenchReport& report);
// Returns all numbers, with the environment.
nlohmann::ordered_json bench_json(const BenchReport& report);

}  // namespace draftsmith::cli
