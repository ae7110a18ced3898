#include "evaluate/report/check_notes.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace draftsmith::evaluate {
namespace {

// Returns what a divergence beyond rounding looks like.
std::string example(const Divergence& first) {
  const auto text = [](const std::optional<int64_t>& token) { return token ? std::to_string(*token) : "nothing"; };
  return fmt::format(" (first on line {} behind {} new tokens: {} for {})", first.line + 1, first.position,
                     text(first.token), text(first.greedy_token));
}

// Returns whether rounding explains all differences of a lossless setting.
std::string explanation(const Exactness& exactness) {
  const bool rounding = exactness.explained_by_rounding.value_or(false);
  std::string text = fmt::format("largest margin {:.2g}", exactness.largest_margin.value_or(NAN));
  if (exactness.tolerance) text += fmt::format(", tolerance {:.2g}", *exactness.tolerance);
  text += rounding ? ": rounding" : ": more than rounding explains";
  return exactness.first_unexplained ? text + example(*exactness.first_unexplained) : text;
}

}  // namespace

std::string failed_lines_note(const SettingResult& setting, Form /*form*/) {
  if (!setting.failed_lines) return "";
  const FailedLines& failed = *setting.failed_lines;
  return fmt::format("! {}: {} lines failed (first line {}: {}): scores count them as empty, speeds lack them",
                     setting.name, failed.lines, failed.first + 1, failed.failure);
}

std::string exactness_note(const SettingResult& setting, Form form) {
  if (!setting.exactness || setting.exactness->differing_lines == 0) return "";
  const Exactness& exactness = *setting.exactness;
  const std::string differ = fmt::format("{}: {} of {} lines differ from greedy decoding", setting.name,
                                         exactness.differing_lines, exactness.lines);
  if (!exactness.lossless) return form == Form::kFull ? differ + "." : "";
  return fmt::format("{} {}, {}", exactness.explained_by_rounding.value_or(false) ? " " : "!", differ,
                     explanation(exactness));
}

std::string first_tokens_note(const SettingResult& setting, Form /*form*/) {
  if (!setting.first_tokens || setting.first_tokens->passed) return "";
  return fmt::format("! {}: {} first tokens do not have the target's distribution, p = {:.2g}", setting.name,
                     setting.first_tokens->tokens, setting.first_tokens->p_value);
}

std::string lossless_verdict(const TaskResult& task) {
  std::vector<std::string> failed;
  int64_t greedy = 0;
  int64_t sampled = 0;
  double least = 1;
  for (const SettingResult* setting : task.rows()) {
    if (!setting->lossless_check) continue;
    if (!*setting->lossless_check) failed.push_back(setting->name);
    if (setting->first_tokens) {
      ++sampled;
      least = std::min(least, setting->first_tokens->p_value);
    } else {
      ++greedy;
    }
  }
  if (greedy + sampled == 0) return "";
  if (!failed.empty()) {
    return fmt::format("! Lossless check FAILED: {} of {} settings: {}", failed.size(), greedy + sampled,
                       fmt::join(failed, ", "));
  }
  std::string text = fmt::format("  Lossless check passed: {} greedy settings", greedy);
  if (sampled > 0) text += fmt::format(", {} sampled ones (first tokens, least p = {:.2g})", sampled, least);
  return text;
}

}  // namespace draftsmith::evaluate
