// Training, evaluation and scoring, as the program's commands train, eval and score do them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <pybind11/pybind11.h>

namespace draftsmith::python {

// What a job reads and where it writes.
struct JobFiles {
  std::filesystem::path input;     // recipe or suite
  std::filesystem::path output;    // work or results; empty: as the program's
  std::vector<std::string> set{};  // KEY=VALUE
};

// Runs a recipe. `flags`: device, threads, matmul_precision and quiet. Returns a list of dicts: stage, directory,
// skipped.
pybind11::list train(const JobFiles& files, const std::string& until, bool fresh, const pybind11::dict& flags);

// Runs a suite. Returns a dict: directory, results, rows, table, failures.
pybind11::dict evaluate_suite(const JobFiles& files, const pybind11::dict& flags);

// Scores texts; `options` are the metric's own, and resamples and seed. Returns the dict of `draftsmith score --json`.
pybind11::object score(const std::string& metric, const std::vector<std::string>& hypotheses,
                       const std::vector<std::vector<std::string>>& references, const pybind11::object& other,
                       pybind11::dict options);

}  // namespace draftsmith::python
