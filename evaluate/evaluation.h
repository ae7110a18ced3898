// Evaluation of a suite: reads it, and runs every method on every task, in turns, timed. Methods are compared with
// autoregressive decoding of the same prompts in the same process (methods.md §3).
//
// The output directory gets results.json, results.csv, report.html, hyp/<task>.<setting>.txt (one hypothesis a line)
// and lines.jsonl: tokens, times and scores of each line under each setting, from which anyone can recompute the
// speedups, and compare two evaluations line by line. measurements.jsonl exists only while the evaluation runs: an
// interrupted one continues from it (evaluate/measure/measurement_store.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "evaluate/engine/engine.h"
#include "evaluate/results/results.h"
#include "evaluate/suite/suite_options.h"

namespace draftsmith::evaluate {

struct SuiteResult {
  Results results;                     // content of results.json
  std::string table;                   // text for the console, at most 100 columns
  std::vector<Problem> failures = {};  // failed checks of the measurements; the results are written nevertheless
};

// Throws a RunError that names all failed checks, if there are any. Call it after the table is shown.
void throw_if_failed(const SuiteResult& result);

// Reads a suite and applies `--set` overlays; a path may begin with the name of a task, run or drafter. A suite without
// a name takes the file's. Errors: a UserError with all problems: missing files and model directories, references that
// lack lines.
SuiteOptions load_suite(const std::filesystem::path& file, const std::vector<std::string>& overrides);

// Runs a suite that is valid (validate_options()). A setting that fails, by an exception or for want of memory, is in
// the results' failures, and all others are measured; only the greedy baseline's failure ends the suite. The
// measurements are kept then, and the next run measures what failed. A stop request (base/signals.h) ends it between
// measurements; the next run continues, with other runs in the suite too. It waits up to `idle_minutes` until other
// processes use little of the machine. Errors: UserError before any work. Checks that fail are in the result
// (evaluate/results/checks.cpp).
SuiteResult run_evaluation(const SuiteOptions& options, const std::filesystem::path& out_dir, Engine& engine,
                           int idle_minutes = 0);

// Loads the models of the suite and runs it.
SuiteResult run_evaluation(const SuiteOptions& options, const std::filesystem::path& out_dir, int idle_minutes = 0);

}  // namespace draftsmith::evaluate
