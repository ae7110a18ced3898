// `draftsmith eval`: runs a suite of methods on tasks and writes results.json, results.csv, report.html and hypotheses.

#include <cstdio>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "base/files.h"
#include "base/signals.h"
#include "cli/application.h"
#include "cli/flags.h"
#include "cli/inputs.h"
#include "distributed/launch.h"
#include "evaluate/evaluation.h"
#include "evaluate/report/report.h"
#include "evaluate/results/results.h"

namespace draftsmith::cli {
namespace {

namespace fs = std::filesystem;

struct EvalFlags {
  Execution execution;
  std::vector<std::string> set;  // --set KEY=VALUE, in order
  fs::path suite;
  fs::path out;
  fs::path markdown;
};

void require_one_process() {
  const auto launch = find_launch();
  if (!launch) return;
  throw UserError({.where = "draftsmith eval",
                   .what = "an evaluation runs in one process, whose times no other may disturb",
                   .expected = "one process",
                   .found = fmt::format("{} processes (WORLD_SIZE)", launch->size),
                   .hint = "start it without torchrun"});
}

int run_eval(const EvalFlags& flags) {
  require_one_process();
  const Execution& execution = flags.execution;
  begin_execution(execution);
  evaluate::SuiteOptions options = load_suite(flags.suite, flags.set);
  execution.apply_to(options);
  const fs::path out = flags.out.empty() ? fs::path("results") / options.name : flags.out;
  evaluate::require_replaceable_results(out / "results.json");
  const SignalWatch signals;
  const auto result = evaluate::run_evaluation(options, out, {.quiet = execution.quiet});
  if (!flags.markdown.empty()) write_file_atomic(flags.markdown, evaluate::report_markdown(result.results));
  fmt::print("{}\nwritten: {}\n", result.table, out.string());
  std::fflush(stdout);  // before the errors
  evaluate::throw_if_failed(result);
  return 0;
}

}  // namespace

Action add_eval(CLI::App& app) {
  auto flags = std::make_shared<EvalFlags>();
  app.add_option("suite", flags->suite, "Suite: tasks, models and methods (TOML)")->required();
  app.add_option("--out", flags->out, "Directory of the results; default: results/<name of the suite>");
  app.add_option("--markdown", flags->markdown, "Write the tables as a Markdown page too (see `draftsmith report`)")
      ->type_name("FILE");
  add_set_flag(app, flags->set);
  add_execution_flags(app, flags->execution);
  app.footer(
      "`draftsmith help options evaluate` explains the keys of a suite. Run the same command again to\n"
      "continue an interrupted evaluation.\n"
      "Examples:\n"
      "  draftsmith eval suite.toml\n"
      "  draftsmith eval suite.toml --set task.test.limit=100 --out results");
  return [flags] { return run_eval(*flags); };
}

}  // namespace draftsmith::cli
