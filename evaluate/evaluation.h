// Runs a suite: every method on every task, interleaved, timed and compared with autoregressive decoding of the same
// prompts in the same process (methods.md §3), and writes the results.
//
// In the output directory: results.json, results.csv, report.html, hyp/<task>.<setting>.txt (one hypothesis a line),
// match_rates.csv and .svg when asked for, router/ when one is tuned, and while it runs measurements.jsonl, from which
// an interrupted evaluation goes on.
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
  Results results;    // what results.json holds
  std::string table;  // for the console, at most 100 columns
};

// Loads the models of the suite. Errors: UserError for wrong directories, vocabularies that differ, unknown devices.
std::unique_ptr<Engine> make_model_engine(const SuiteOptions& options);

// SIGINT and SIGTERM (base/signals.h) stop it between measurements; run again, it goes on.
// Errors: UserError before anything is run; RunError, after all results are written, when a speedup exceeds what the
// counted target runs allow (a measurement error; in batches the counts allow no such check).
SuiteResult run_evaluation(const SuiteOptions& options, const std::filesystem::path& out_dir, Engine& engine,
                           const SuiteContext& context = {});

// The same with the models of the suite.
SuiteResult run_evaluation(const SuiteOptions& options, const std::filesystem::path& out_dir,
                           const SuiteContext& context = {});

}  // namespace draftsmith::evaluate
