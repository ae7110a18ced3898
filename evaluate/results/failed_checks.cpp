#include "evaluate/results/failed_checks.h"

#include <fmt/format.h>

namespace draftsmith::evaluate {
namespace {

Problem beyond_bound(const std::string& where, const SpeedResult& speed) {
  return {.where = where,
          .what = "measurement error: decoding was faster than its runs of the target or of its layers allow",
          .expected = fmt::format("speedup_decode at most {}", speed.bound.value_or(0)),
          .found = fmt::format("{}", speed.speedup_decode.value),
          .hint = "something disturbed the baseline's times; measure again on an idle machine"};
}

Problem failed_setting(const std::string& where, const SettingFailure& failure) {
  return {.where = where,
          .what = fmt::format("{} failed during {}", failure.setting, failure.during),
          .expected = "",
          .found = failure.message,
          .hint = "all else is measured and written; run the evaluation again to measure what is missing"};
}

Problem lines_without_output(const std::string& where, const FailedLines& failed) {
  return {.where = fmt::format("{}, line {}", where, failed.first + 1),
          .what = failed.failure,
          .expected = "an output for every line",
          .found = fmt::format("{} lines without one", failed.lines),
          .hint = "scores count them as empty, speeds lack them; train the model on or use a wider dtype"};
}

std::string token_text(const std::optional<int64_t>& token) {
  return token ? fmt::format("token {}", *token) : "no token";
}

Problem other_tokens(const std::string& where, const Exactness& exactness) {
  const Divergence first = exactness.first_unexplained.value_or(Divergence());
  return {.where = where,
          .what = fmt::format("a lossless method differs from greedy decoding on {} of {} lines by more than rounding",
                              exactness.unexplained_lines.value_or(exactness.differing_lines), exactness.lines),
          .expected = fmt::format("{} on line {} behind {} new tokens, or one within {:.2g} of the highest logit",
                                  token_text(first.greedy_token), first.line + 1, first.position,
                                  exactness.tolerance.value_or(0)),
          .found = fmt::format("{}, a margin of {:.2g}", token_text(first.token), first.margin),
          .hint = "a defect of the method or of the models' kernels; the suite in dtype fp64 tells rounding apart"};
}

Problem other_distribution(const std::string& where, const FirstTokenTest& test) {
  return {.where = where,
          .what = fmt::format("the first tokens of {} samples do not have the target's distribution", test.tokens),
          .expected = fmt::format("a p-value of at least {:g}", kFirstTokenAlarm),
          .found = fmt::format("{:.2g}, at a distance of {:.3f}", test.p_value, test.distance),
          .hint = "a defect of the method, which happens by chance once in a million settings"};
}

}  // namespace

std::vector<Problem> failed_checks(const Results& results, const std::string& file) {
  std::vector<Problem> problems;
  for (const TaskResult& task : results.tasks) {
    for (const SettingFailure& failure : task.failures) {
      problems.push_back(failed_setting(fmt::format("{}, task {}", file, task.name), failure));
    }
    for (const SettingResult* setting : task.rows()) {
      const std::string where = fmt::format("{}, task {}, run {}", file, task.name, setting->name);
      if (setting->failed_lines) problems.push_back(lines_without_output(where, *setting->failed_lines));
      if (setting->measurement_error) problems.push_back(beyond_bound(where, setting->speed));
      if (setting->lossless_check.value_or(true)) continue;
      if (setting->exactness) problems.push_back(other_tokens(where, *setting->exactness));
      if (setting->first_tokens) problems.push_back(other_distribution(where, *setting->first_tokens));
    }
  }
  return problems;
}

}  // namespace draftsmith::evaluate
