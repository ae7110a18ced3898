// `draftsmith report`: shows the results of a finished evaluation, as text, Markdown or HTML.

#include "evaluate/report/report.h"

#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "base/files.h"
#include "cli/application.h"
#include "cli/inputs.h"

namespace draftsmith::cli {
namespace {

namespace fs = std::filesystem;

struct ReportFlags {
  fs::path results;
  fs::path markdown;
  fs::path html;
};

int run_report(const ReportFlags& flags) {
  const evaluate::Results results = evaluate::load_results(find_results(flags.results));
  if (!flags.markdown.empty()) write_file_atomic(flags.markdown, evaluate::report_markdown(results));
  if (!flags.html.empty()) write_file_atomic(flags.html, evaluate::report_html(results));
  if (flags.markdown.empty() && flags.html.empty()) fmt::print("{}", evaluate::results_table(results));
  return 0;
}

}  // namespace

Action add_report(CLI::App& app) {
  auto flags = std::make_shared<ReportFlags>();
  app.add_option("results", flags->results, "A results.json, or the directory of an evaluation, stage or recipe's work")
      ->required();
  app.add_option("--markdown", flags->markdown, "Write the tables as a Markdown page")->type_name("FILE");
  app.add_option("--html", flags->html, "Write tables and plots as an HTML page")->type_name("FILE");
  app.footer(
      "Without --markdown and --html the tables are printed. A page says what was measured, with which\n"
      "command, commit and machine, and when; nothing is measured again.\n"
      "Examples:\n  draftsmith report work/quickstart\n"
      "  draftsmith report work/quickstart --markdown docs/results/quickstart.md");
  return [flags] { return run_report(*flags); };
}

}  // namespace draftsmith::cli
