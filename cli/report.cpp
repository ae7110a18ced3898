// `draftsmith report`: shows the results of a finished evaluation, as text, Markdown or HTML.

#include "evaluate/report/report.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/files.h"
#include "cli/commands.h"

namespace draftsmith::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "results.json";

struct ReportFlags {
  fs::path results;
  fs::path markdown;
  fs::path html;
};

// Returns the results of the stages in use of a work directory.
std::vector<std::string> results_of_stages(const fs::path& work) {
  std::vector<std::string> files;
  if (!fs::is_directory(work)) return files;
  for (const auto& entry : fs::directory_iterator(work)) {
    if (entry.is_symlink() && fs::exists(entry.path() / kFile)) files.push_back((entry.path() / kFile).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Returns the file of results that the user named, or named the directory of.
fs::path find_results(const fs::path& path) {
  if (fs::is_regular_file(path)) return path;
  if (fs::exists(path / kFile)) return path / kFile;
  const auto files = results_of_stages(path);
  if (files.size() == 1) return files.front();
  throw UserError({.where = path.string(),
                   .what = files.empty() ? "there are no results" : "there are several results",
                   .expected = "a results.json, or a directory with one: of an evaluation, a stage or a recipe's work",
                   .found = files.empty() ? "none" : fmt::format("{}", fmt::join(files, ", ")),
                   .hint = files.empty() ? "" : "name one of them"});
}

int run_report(const ReportFlags& flags) {
  const evaluate::Results results = evaluate::load_results(find_results(flags.results));
  if (!flags.markdown.empty()) write_file_atomic(flags.markdown, evaluate::report_markdown(results));
  if (!flags.html.empty()) write_file_atomic(flags.html, evaluate::report_html(results));
  if (flags.markdown.empty() && flags.html.empty()) fmt::print("{}", evaluate::results_table(results));
  return 0;
}

}  // namespace

std::function<int()> add_report(CLI::App& app) {
  auto flags = std::make_shared<ReportFlags>();
  app.add_option("results", flags->results, "A results.json, or the directory of an evaluation, stage or recipe's work")
      ->required();
  app.add_option("--markdown", flags->markdown, "Write the tables as a Markdown page")->type_name("FILE");
  app.add_option("--html", flags->html, "Write tables and plots as an HTML page")->type_name("FILE");
  app.footer(
      "Without --markdown and --html the tables are printed. A page says what was measured, with which\n"
      "command, commit and machine, and when; nothing is measured again.\n"
      "Example:\n  draftsmith report work/quickstart --markdown docs/results/quickstart.md");
  return [flags] { return run_report(*flags); };
}

}  // namespace draftsmith::cli
