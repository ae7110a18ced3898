// `draftsmith eval`, `report` and `compare`: run a suite, show its results again, and show what changed between two.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/files.h"
#include "base/logging.h"
#include "base/signals.h"
#include "cli/application.h"
#include "distributed/process_group.h"
#include "evaluate/comparison/comparison.h"
#include "evaluate/evaluation.h"
#include "evaluate/report/report.h"
#include "evaluate/results/results.h"
#include "evaluate/suite/suite_options.h"
#include "recipes/pipeline.h"
#include "recipes/stage.h"

namespace draftsmith::cli {
namespace {

namespace fs = std::filesystem;

struct EvalFlags {
  recipes::Execution execution;
  std::vector<std::string> set;  // --set KEY=VALUE, in order
  std::string precision;         // of the suite; empty: its own
  fs::path suite;
  fs::path out;
  int idle_minutes = 0;  // --wait-for-idle
};

// Returns the file of results that the user named, or named the directory of: of an evaluation, a stage or a recipe's
// work. Errors: UserError if there is none, or several.
fs::path find_results(const fs::path& path) {
  if (fs::is_regular_file(path)) return path;
  if (fs::exists(path / "results.json")) return path / "results.json";
  std::vector<std::string> files;  // of the stages in use of a work directory
  for (const auto& entry : fs::is_directory(path) ? fs::directory_iterator(path) : fs::directory_iterator()) {
    const fs::path file = entry.path() / "results.json";
    if (entry.is_symlink() && fs::exists(file)) files.push_back(file.string());
  }
  std::sort(files.begin(), files.end());
  if (files.size() == 1) return files.front();
  throw UserError({.where = path.string(),
                   .what = files.empty() ? "there are no results" : "there are several results",
                   .expected = "a results.json, or a directory with one: of an evaluation, a stage or a recipe's work",
                   .found = files.empty() ? "none" : fmt::format("{}", fmt::join(files, ", ")),
                   .hint = files.empty() ? "" : "name one of them"});
}

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
  const recipes::Execution& execution = flags.execution;
  begin_execution(execution);
  require_recipe(flags.suite, false);
  std::vector<std::string> set = flags.set;
  if (!flags.precision.empty()) set.push_back("precision=" + flags.precision);
  evaluate::SuiteOptions options = evaluate::load_suite(flags.suite, set);
  execution.apply_to(options);
  const fs::path out = flags.out.empty() ? fs::path("results") / options.name : flags.out;
  evaluate::require_replaceable_results(out / "results.json");
  const SignalWatch signals;
  const auto result = evaluate::run_evaluation(options, out, flags.idle_minutes);
  fmt::print("{}\nwritten: {}\n", result.table, out.string());
  std::fflush(stdout);  // before the errors
  evaluate::throw_if_failed(result);
  return 0;
}

struct ReportFlags {
  fs::path results;
  fs::path markdown;
  fs::path html;
};

// Notes the seconds of a finished stage and of those that it read.
void note_seconds(const fs::path& stage, std::map<fs::path, double>& seconds) {
  const auto done = seconds.contains(stage) ? std::nullopt : recipes::read_done(stage);
  if (!done) return;
  seconds[stage] = done->seconds;
  for (const auto& [input, hash] : done->inputs) {
    if (!input.starts_with('@')) continue;  // a file
    note_seconds(recipes::stage_directory(stage.parent_path(), input.substr(1), hash), seconds);
  }
}

// Returns how long an evaluation and the stages that it rests on took; empty for one of no recipe.
std::string wall_time(const fs::path& evaluation) {
  std::map<fs::path, double> seconds;
  note_seconds(evaluation, seconds);
  if (seconds.empty()) return "";
  double all = 0;
  for (const auto& [stage, own] : seconds) all += own;
  return fmt::format("The evaluation took {}, with the stages that it rests on {} (of interrupted ones the last run)",
                     human_duration(seconds.at(evaluation)), human_duration(all));
}

int run_report(const ReportFlags& flags) {
  const fs::path file = find_results(flags.results);
  const evaluate::Results results = evaluate::load_results(file);
  if (!flags.markdown.empty()) {
    std::string page = evaluate::report_markdown(results, wall_time(fs::canonical(file).parent_path()));
    const fs::path tables = fs::path(flags.markdown).replace_extension(".tables.txt");
    page += fmt::format("\n[All tables and notes]({}).\n", tables.filename().string());
    const bool again = fs::is_regular_file(flags.markdown) || fs::is_directory(flags.markdown);
    if (again) page = evaluate::keep_handwritten(page, read_file(flags.markdown), flags.markdown.string());
    write_file_atomic(flags.markdown, page);
    write_file_atomic(tables, evaluate::results_table(results));
  }
  if (!flags.html.empty()) write_file_atomic(flags.html, evaluate::report_html(results));
  if (flags.markdown.empty() && flags.html.empty()) fmt::print("{}", evaluate::results_table(results));
  return 0;
}

struct CompareFlags {
  std::filesystem::path first;
  std::filesystem::path second;
  std::optional<double> slower;  // percent
  std::optional<double> worse;
  std::string by = "speedup";
};

// Returns the number of a percentage such as "5%".
std::string without_percent_sign(const std::string& text) {
  if (!text.ends_with('%')) throw CLI::ValidationError("is no percentage such as 3%: " + text);
  return text.substr(0, text.size() - 1);
}

int run_compare(const CompareFlags& flags) {
  const evaluate::Limits limits{.slower = flags.slower ? std::optional(*flags.slower / 100) : std::nullopt,
                                .worse = flags.worse,
                                .by_tokens_per_second = flags.by == "tokens"};
  const evaluate::Evaluation first = evaluate::load_evaluation(find_results(flags.first));
  const evaluate::Evaluation second = evaluate::load_evaluation(find_results(flags.second));
  const auto [text, failures] = evaluate::compare(first, second, limits, {});
  fmt::print("{}", text);
  std::fflush(stdout);  // before the errors
  if (failures.empty()) return 0;
  throw RunError({.where = second.file.string(),
                  .what = fmt::format("{} changes from {} exceed the limits", failures.size(), first.file.string()),
                  .found = fmt::format("{}", fmt::join(failures, "\n"))});
}

}  // namespace

Action add_eval(CLI::App& app) {
  auto flags = std::make_shared<EvalFlags>();
  app.add_option("suite", flags->suite, "Suite: tasks, models and methods (TOML)")->required();
  app.add_option("--out", flags->out, "Directory of the results; default: results/<name of the suite>");
  app.add_option("--precision", flags->precision,
                 "Stop timing settings whose 95 % interval reaches less than this share of the speedup, such as 0.03")
      ->type_name("SHARE");
  app.add_option("--wait-for-idle", flags->idle_minutes,
                 "Wait at most so long until other processes use less than a tenth of the processors for five seconds")
      ->check(CLI::Range(0, 1440))
      ->type_name("MINUTES");
  add_set_flag(app, flags->set);
  add_execution_flags(app, flags->execution);
  app.footer(
      "`draftsmith help options evaluate` explains the keys of a suite. Run the same command again to\n"
      "continue an interrupted evaluation. `draftsmith report DIR` shows the results again.\n"
      "Examples:\n"
      "  draftsmith eval suite.toml\n"
      "  draftsmith eval suite.toml --set task.test.limit=100 --out results\n"
      "  draftsmith eval suite.toml --precision 0.03 --set repetitions=20");
  return [flags] { return run_eval(*flags); };
}

Action add_report(CLI::App& app) {
  auto flags = std::make_shared<ReportFlags>();
  app.add_option("results", flags->results, "A results.json, or the directory of an evaluation, stage or recipe's work")
      ->required();
  app.add_option("--markdown", flags->markdown, "Write a Markdown page, or write it again")->type_name("FILE");
  app.add_option("--html", flags->html, "Write tables and plots as an HTML page")->type_name("FILE");
  app.footer(
      "Without --markdown and --html the tables are printed. A page says what was measured, with which\n"
      "command, commit and machine, and when; what people wrote between the marks of a page stays.\n"
      "All tables stand beside it: page.tables.txt beside page.md.\n"
      "Examples:\n  draftsmith report work/quickstart\n"
      "  draftsmith report work/quickstart --markdown docs/results/quickstart.md");
  return [flags] { return run_report(*flags); };
}

Action add_compare(CLI::App& app) {
  auto flags = std::make_shared<CompareFlags>();
  app.add_option("first", flags->first, "A results.json, or the directory of an evaluation, stage or recipe's work")
      ->required();
  app.add_option("second", flags->second, "The other one, whose changes are shown")->required();
  app.add_option("--fail-on-slower", flags->slower,
                 "Exit with 1 if a setting became slower by more than this, such as 3%, and by more than noise")
      ->transform(without_percent_sign, "")
      ->type_name("PERCENT")
      ->check(within(0, 100), "");
  app.add_option("--fail-on-worse", flags->worse,
                 "Exit with 1 if a setting lost more than so many points, and more than noise")
      ->type_name("POINTS")
      ->check(within(0, std::numeric_limits<double>::max()), "");
  app.add_option("--by", flags->by,
                 "Speed for --fail-on-slower: 'speedup' over the baseline of the same evaluation, which the machine's "
                 "load hardly changes, or 'tokens' a second, which an otherwise idle machine can compare")
      ->check(CLI::IsMember({"speedup", "tokens"}))
      ->capture_default_str();
  app.footer(
      "Settings are the same if task and name are. Where lines.jsonl lies beside both results, quality and\n"
      "speed are compared line by line. With a limit, a setting that is missing fails too.\n"
      "Example:\n"
      "  draftsmith compare main/results.json results --fail-on-slower 3% --fail-on-worse 0.5");
  return [flags] { return run_compare(*flags); };
}

}  // namespace draftsmith::cli
