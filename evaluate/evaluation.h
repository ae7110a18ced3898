// Evaluation of a suite: every method on every task, in turns, timed. Methods are compared with autoregressive decoding
// of the same prompts in the same process (methods.md §3).
//
// The output directory gets results.json, results.csv, report.html, hyp/<task>.<setting>.txt (one hypothesis a line)
// and lines.jsonl (tokens and times of each line, evaluate/results/lines_file.h). Match rates add match_rates.csv and
// .svg, a tuned router adds router/. measurements.jsonl exists only while the evaluation runs: an interrupted one
// continues from it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "evaluate/engine/engine.h"
#include "evaluate/measure/context.h"
#include "evaluate/results/results.h"
#include "evaluate/suite/suite_options.h"

namespace draftsmith::evaluate {

struct SuiteResult {
  Results results;    // content of results.json
  std::string table;  // text for the console, at most 100 columns
};

// Loads the models of the suite. Errors: UserError for wrong directories, vocabularies that differ, unknown devices.
std::unique_ptr<Engine> make_model_engine(const SuiteOptions& options);

// Runs the suite. A stop request (base/signals.h) ends it between measurements; the next run continues.
// Errors: UserError before any work; RunError if a speedup exceeds its bound, after the results are written. Batches
// have no such bound.
SuiteResult run_evaluation(const SuiteOptions& options, const std::filesystem::path& out_dir, Engine& engine,
                           const SuiteContext& context = {});

// Loads the models of the suite and runs it.
SuiteResult run_evaluation(const SuiteOptions& options, const std::filesystem::path& out_dir,
                           const SuiteContext& context = {});

}  // namespace draftsmith::evaluate
