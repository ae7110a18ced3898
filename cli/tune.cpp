// `draftsmith tune`: searches the grids of a suite on validation data, and writes a suite of the chosen settings.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/environment.h"
#include "base/error.h"
#include "base/files.h"
#include "base/signals.h"
#include "cli/commands.h"
#include "cli/common_flags.h"
#include "cli/job.h"
#include "cli/suite_file.h"
#include "evaluate/evaluation.h"
#include "evaluate/tuning/tuned_suite.h"
#include "evaluate/tuning/tuning.h"

namespace draftsmith::cli {
namespace {

namespace fs = std::filesystem;

struct TuneFlags {
  CommonFlags common;
  fs::path suite;
  fs::path out;
  fs::path work;
  std::string objective = "tokens";
  evaluate::TuningOptions tuning;
};

// Refuses an output that would replace the suite.
void check_out(const TuneFlags& flags) {
  std::error_code missing;
  if (!fs::equivalent(flags.suite, flags.out, missing)) return;
  throw UserError({.where = "--out",
                   .what = "the tuned suite would replace the suite",
                   .expected = "another file",
                   .found = flags.out.string()});
}

// Refuses a job of several processes: the rungs' times are one process's.
void require_one_process() {
  const auto launch = find_launch(process_environment());
  if (!launch || launch->size == 1) return;
  throw UserError({.where = "draftsmith tune",
                   .what = "a search runs in one process",
                   .expected = "one process, started without a launcher",
                   .found = std::to_string(launch->size) + " processes, started by " + launch->launcher});
}

// Returns the comment at the top of the tuned suite.
std::string head_of(const TuneFlags& flags, const evaluate::TuningResult& result) {
  std::string head =
      fmt::format("Written by draftsmith tune from {}; commit {}.\n", flags.suite.string(), git_commit());
  head += fmt::format("Chosen on task {} of {} lines for {}, with at most {:g} points lost:\n", result.task,
                      result.rungs.back().lines,
                      flags.objective == "tokens" ? "tokens a second" : "the 95th percentile of the time a sentence",
                      flags.tuning.max_drop);
  for (const evaluate::TunedSetting& one : result.chosen) {
    head += fmt::format("  {}: one of {}, {:.2f} x as fast as its baseline there, {:.2f} points lost\n",
                        one.setting.label, one.of, one.speedup, one.drop);
  }
  return head;
}

int run_tune(const TuneFlags& flags) {
  require_one_process();
  begin_execution(flags.common.execution);
  const toml::table table = suite_table(flags.suite, flags.common.set);
  evaluate::SuiteOptions suite = load_suite(flags.suite, flags.common.set);
  evaluate::TuningOptions tuning = flags.tuning;
  if (flags.objective == "p95") tuning.objective = evaluate::Objective::kSentenceP95;
  tuning.task = evaluate::tuning_task(suite, tuning);
  check_out(flags);
  if (flags.common.execution.device != "auto") suite.device = flags.common.execution.device;
  suite.threads = evaluate::timing_threads(suite, flags.common.execution.threads, true);
  const fs::path work = flags.work.empty() ? fs::path(flags.out).replace_extension(".rungs") : flags.work;
  const SignalWatch signals;
  const auto engine = evaluate::make_model_engine(suite);
  const auto result = evaluate::tune(suite, tuning, work, *engine, {.quiet = flags.common.execution.quiet});
  write_file_atomic(flags.out, evaluate::tuned_suite(table, result, head_of(flags, result)));
  fmt::print("{}\nwritten: {}, rungs in {}\nnext: draftsmith eval {}\n", evaluate::tuning_table(result, tuning),
             flags.out.string(), work.string(), flags.out.string());
  return 0;
}

}  // namespace

std::function<int()> add_tune(CLI::App& app) {
  auto flags = std::make_shared<TuneFlags>();
  evaluate::TuningOptions& tuning = flags->tuning;
  app.add_option("suite", flags->suite, "Suite whose runs have lists of values: thresholds, windows, drafters (TOML)")
      ->required();
  app.add_option("--out", flags->out, "File of the tuned suite")->required()->type_name("TUNED.toml");
  app.add_option("--max-drop", tuning.max_drop, "Points of quality that a setting may lose on the validation data")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--objective", flags->objective,
                 "What to make best: 'tokens' a second, or the 95th percentile of the time a sentence, 'p95'")
      ->check(CLI::IsMember({"tokens", "p95"}))
      ->capture_default_str();
  app.add_option("--on", tuning.task, "Task of validation data; default: the one that the runs choose on")
      ->type_name("TASK");
  app.add_flag("--full", tuning.full, "Measure the full grid on all lines, in place of successive halving");
  app.add_flag("!--no-theory", tuning.theory,
               "Measure in the first rung, too, what theory predicts to be far slower than other settings of its run");
  app.add_option("--share", tuning.share,
                 "One in so many settings goes on to the next rung, which has so many times the lines")
      ->check(CLI::Range(2, 100))
      ->capture_default_str();
  app.add_option("--fewest-lines", tuning.fewest_lines, "Lines of the first rung, at least")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--work", flags->work, "Directory of the rungs' results; default: TUNED.rungs")->type_name("DIR");
  add_set_flag(app, flags->common.set);
  add_execution_flags(app, flags->common.execution);
  app.footer(
      "Of each [[run]] one setting is chosen, for each way to sample in it. The tuned suite has the other\n"
      "tasks. Run the same command again to continue an interrupted search.\n"
      "Examples:\n"
      "  draftsmith tune suite.toml --out tuned.toml --max-drop 0.5\n"
      "  draftsmith tune suite.toml --out tuned.toml --objective p95 --on val --full\n"
      "  draftsmith eval tuned.toml");
  return [flags] { return run_tune(*flags); };
}

}  // namespace draftsmith::cli
