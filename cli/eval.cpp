// `draftsmith eval`: runs a suite of methods on tasks and writes results.json, results.csv, report.html and hypotheses.

#include <cstdio>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "base/files.h"
#include "base/signals.h"
#include "cli/commands.h"
#include "cli/common_flags.h"
#include "cli/job.h"
#include "cli/suite_file.h"
#include "evaluate/evaluation.h"
#include "evaluate/report/report.h"
#include "evaluate/results/results.h"

namespace draftsmith::cli {
namespace {

namespace fs = std::filesystem;

struct EvalFlags {
  CommonFlags common;
  fs::path suite;
  fs::path out;
  fs::path markdown;
  bool latency = false;
  int64_t timeout = kJobTimeout;  // seconds
};

int run_eval(const EvalFlags& flags) {
  const auto launch = find_launch(process_environment());
  const ExecutionOptions execution = launch ? for_launch(flags.common.execution, *launch) : flags.common.execution;
  const ExecutionContext context = begin_execution(execution);
  evaluate::SuiteOptions options = load_suite(flags.suite, flags.common.set);
  if (execution.device != "auto") options.device = execution.device;
  options.threads = evaluate::timing_threads(options, flags.common.execution.threads, !launch);
  const fs::path out = flags.out.empty() ? fs::path("results") / options.name : flags.out;
  const SignalWatch signals;
  Job job(launch, context.device, flags.timeout);
  World& world = job.world();
  job.run([&] {
    const auto result = evaluate::run_evaluation(
        options, out, {.quiet = execution.quiet, .world = &world, .shared_threads = execution.threads});
    if (world.leads()) {
      if (!flags.markdown.empty()) write_file_atomic(flags.markdown, evaluate::report_markdown(result.results));
      if (flags.latency) fmt::print("{}\n", evaluate::latency_tables(result.results));
      fmt::print("{}\nwritten: {}\n", result.table, out.string());
      std::fflush(stdout);  // before the errors
      evaluate::throw_if_failed(result);
    }
    world.wait_for_all("the end of the evaluation");
  });
  return 0;
}

}  // namespace

std::function<int()> add_eval(CLI::App& app) {
  auto flags = std::make_shared<EvalFlags>();
  app.add_option("suite", flags->suite, "Suite: tasks, models and methods (TOML)")->required();
  app.add_option("--out", flags->out, "Directory of the results; default: results/<name of the suite>");
  app.add_option("--markdown", flags->markdown, "Write the tables as a Markdown page too (see `draftsmith report`)")
      ->type_name("FILE");
  app.add_flag("--latency", flags->latency,
               "Print throughput and percentiles of time a sentence and a token too (files always have them)");
  add_timeout_flag(app, flags->timeout);
  add_set_flag(app, flags->common.set);
  add_execution_flags(app, flags->common.execution);
  app.footer(
      "`draftsmith help options evaluate` explains the keys of a suite. Run the same command again to\n"
      "continue an interrupted evaluation.\n"
      "Examples:\n"
      "  draftsmith eval suite.toml\n"
      "  draftsmith eval suite.toml --set task.test.limit=100 --out results\n"
      "  torchrun --nproc-per-node=4 --no-python draftsmith eval suite.toml");
  return [flags] { return run_eval(*flags); };
}

}  // namespace draftsmith::cli
