// `draftsmith compare`: what changed between two evaluations, and whether it is more than noise.
#include <charconv>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/files.h"
#include "cli/application.h"
#include "cli/inputs.h"
#include "evaluate/comparison/comparison.h"

namespace draftsmith::cli {
namespace {

namespace fs = std::filesystem;

struct CompareFlags {
  fs::path first;
  fs::path second;
  std::string slower;
  std::optional<double> worse;
  std::string by = "speedup";
  fs::path markdown;
};

// Returns the share that a percentage such as "5%" names. Errors: UserError.
double share_of(const std::string& text) {
  double percent = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, percent);
  if (read.ec == std::errc() && read.ptr + 1 == end && *read.ptr == '%' && percent >= 0 && percent < 100) {
    return percent / 100;
  }
  throw UserError({.where = "--fail-on-slower",
                   .what = "is no percentage",
                   .expected = "a number from 0 to 100 with a percent sign, such as 5%",
                   .found = text,
                   .hint = ""});
}

int run_compare(const CompareFlags& flags) {
  const evaluate::Limits limits{.slower = flags.slower.empty() ? std::nullopt : std::optional(share_of(flags.slower)),
                                .worse = flags.worse,
                                .by_tokens_per_second = flags.by == "tokens"};
  const evaluate::Evaluation first = evaluate::load_evaluation(find_results(flags.first));
  const evaluate::Evaluation second = evaluate::load_evaluation(find_results(flags.second));
  const evaluate::Comparison comparison = evaluate::compare(first, second, {});
  if (!flags.markdown.empty()) write_file_atomic(flags.markdown, evaluate::comparison_markdown(comparison));
  fmt::print("{}", evaluate::comparison_text(comparison));
  std::fflush(stdout);  // before the errors
  const auto failures = evaluate::exceeded(comparison, limits);
  if (failures.empty()) return 0;
  throw RunError({.where = second.file.string(),
                  .what = fmt::format("{} changes from {} exceed the limits", failures.size(), first.file.string()),
                  .found = fmt::format("{}", fmt::join(failures, "\n"))});
}

}  // namespace

Action add_compare(CLI::App& app) {
  auto flags = std::make_shared<CompareFlags>();
  app.add_option("first", flags->first, "A results.json, or the directory of an evaluation, stage or recipe's work")
      ->required();
  app.add_option("second", flags->second, "The other one, whose changes are shown")->required();
  app.add_option("--fail-on-slower", flags->slower,
                 "Exit with 1 if a setting became slower by more than this, and by more than noise")
      ->type_name("PERCENT");
  app.add_option("--fail-on-worse", flags->worse,
                 "Exit with 1 if a setting lost more than so many points, and more than noise")
      ->type_name("POINTS")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--by", flags->by,
                 "Speed for --fail-on-slower: 'speedup' over the baseline of the same evaluation, which the machine's "
                 "load hardly changes, or 'tokens' a second, which an otherwise idle machine can compare")
      ->check(CLI::IsMember({"speedup", "tokens"}))
      ->capture_default_str();
  app.add_option("--markdown", flags->markdown, "Write the tables as a Markdown page too")->type_name("FILE");
  app.footer(
      "Settings are the same if task and name are. Where lines.jsonl lies beside both results, quality is\n"
      "compared by the paired bootstrap over lines. With a limit, a setting that is missing fails too.\n"
      "Examples:\n"
      "  draftsmith compare results/before results/after\n"
      "  draftsmith compare main/results.json results --fail-on-slower 5% --fail-on-worse 0.5");
  return [flags] { return run_compare(*flags); };
}

}  // namespace draftsmith::cli
