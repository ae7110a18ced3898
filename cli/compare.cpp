// `draftsmith compare`: what changed between two evaluations, and whether it is more than noise.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "cli/application.h"
#include "cli/inputs.h"
#include "evaluate/comparison/comparison.h"

namespace draftsmith::cli {
namespace {

struct CompareFlags {
  std::filesystem::path first;
  std::filesystem::path second;
  std::optional<double> slower;  // percent
  std::optional<double> worse;
  std::string by = "speedup";
};

// Returns the number of a percentage such as "5%".
std::string without_percent_sign(const std::string& text) {
  if (!text.ends_with('%')) throw CLI::ValidationError("is no percentage such as 5%: " + text);
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

Action add_compare(CLI::App& app) {
  auto flags = std::make_shared<CompareFlags>();
  app.add_option("first", flags->first, "A results.json, or the directory of an evaluation, stage or recipe's work")
      ->required();
  app.add_option("second", flags->second, "The other one, whose changes are shown")->required();
  app.add_option("--fail-on-slower", flags->slower,
                 "Exit with 1 if a setting became slower by more than this, such as 5%, and by more than noise")
      ->transform(without_percent_sign, "")
      ->type_name("PERCENT")
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--fail-on-worse", flags->worse,
                 "Exit with 1 if a setting lost more than so many points, and more than noise")
      ->type_name("POINTS")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--by", flags->by,
                 "Speed for --fail-on-slower: 'speedup' over the baseline of the same evaluation, which the machine's "
                 "load hardly changes, or 'tokens' a second, which an otherwise idle machine can compare")
      ->check(CLI::IsMember({"speedup", "tokens"}))
      ->capture_default_str();
  app.footer(
      "Settings are the same if task and name are. Where lines.jsonl lies beside both results, quality is\n"
      "compared by the paired bootstrap over lines. With a limit, a setting that is missing fails too.\n"
      "Example:\n"
      "  draftsmith compare main/results.json results --fail-on-slower 5% --fail-on-worse 0.5");
  return [flags] { return run_compare(*flags); };
}

}  // namespace draftsmith::cli
