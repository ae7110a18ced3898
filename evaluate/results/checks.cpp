// Checks that lossless settings give what they promise: greedy outputs token for token but for rounding, and first
// tokens of the target's own distribution when sampling. Messages of failed checks.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/random.h"
#include "evaluate/results/summary.h"

namespace draftsmith::evaluate {
namespace {

constexpr size_t kRoundingLines = 4;     // lines on which rounding is measured
constexpr size_t kFirstTokenLines = 16;  // lines in a pass over first tokens
// Factor between the measured rounding of a logit and the margin that rounding may turn round. Each of two logits may
// err, by more on other lines and in other forms of a step than on those measured.
constexpr double kRoundingSafety = 8;

double measured_rounding(const MeasuredTask& measured, const Setting& setting, std::vector<size_t> lines,
                         Engine& engine) {
  lines.resize(std::min(lines.size(), kRoundingLines));
  std::vector<Prompt> prompts;
  std::vector<std::vector<int64_t>> outputs;
  for (const size_t line : lines) {
    prompts.push_back(measured.prompts[line]);
    outputs.push_back(measured.own_greedy(setting)[line].ids);
  }
  return engine.logit_rounding(setting, prompts, outputs);
}

// Returns where the outputs of a line differ first. An output that ends where the other goes on has no token there,
// which no rounding explains.
Divergence divergence(const MeasuredTask& measured, const Setting& setting, size_t line, Engine& engine) {
  const std::vector<int64_t>& own = measured.records.at(setting.label)[line].ids;
  const std::vector<int64_t>& greedy = measured.own_greedy(setting)[line].ids;
  const auto [a, b] = std::mismatch(own.begin(), own.end(), greedy.begin(), greedy.end());
  Divergence result{.line = static_cast<int64_t>(line), .position = a - own.begin()};
  if (a != own.end()) result.token = *a;
  if (b != greedy.end()) result.greedy_token = *b;
  result.margin = std::numeric_limits<double>::infinity();
  if (a == own.end() || b == greedy.end()) return result;
  const std::vector<int64_t> tokens{*a, *b};
  const std::vector<double> gaps =
      engine.logit_gaps(setting, {measured.prompts[line], {own.begin(), a}, measured.max_new_tokens}, tokens);
  const bool known = std::none_of(gaps.begin(), gaps.end(), [](double gap) { return std::isnan(gap); });
  if (known) result.margin = *std::max_element(gaps.begin(), gaps.end());
  return result;
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
  return {
      .where = where,
      .what = fmt::format("a lossless method differs from greedy decoding by more than rounding; {} of {} lines differ",
                          exactness.differing_lines, exactness.lines),
      .expected =
          fmt::format("{} on line {} behind {} new tokens, or one within {:.2g} of the highest logit",
                      token_text(first.greedy_token), first.line + 1, first.position, exactness.tolerance.value_or(0)),
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

FirstTokenTest test_first_tokens(std::span<const TokenMass> tokens, uint64_t seed, const std::string& name) {
  FirstTokenTest test;
  test.tokens = std::ssize(tokens);
  if (tokens.empty()) return test;
  const CounterRandom random(seed, "first tokens " + name);
  std::vector<double> places;
  for (const TokenMass& token : tokens) {
    places.push_back(std::clamp(token.before + token.own * random.uniform(places.size()), 0.0, 1.0));
  }
  std::sort(places.begin(), places.end());
  const auto n = static_cast<double>(places.size());
  for (size_t i = 0; i < places.size(); ++i) {
    const auto rank = static_cast<double>(i);
    test.distance = std::max({test.distance, places[i] - rank / n, (rank + 1) / n - places[i]});
  }
  test.p_value = std::min(1.0, 2 * std::exp(-2 * n * test.distance * test.distance));
  test.passed = test.p_value >= kFirstTokenAlarm;
  return test;
}

Exactness check_exactness(const MeasuredTask& measured, const Setting& setting, Engine& engine) {
  const SettingRecords& own = measured.records.at(setting.label);
  const SettingRecords& greedy = measured.own_greedy(setting);
  Exactness result;
  result.lossless = setting.lossless();
  result.lines = static_cast<int64_t>(own.size());
  std::vector<size_t> differing;
  for (size_t line = 0; line < own.size(); ++line) {
    const bool failed = own[line].failure || greedy[line].failure;
    if (!failed && own[line].ids != greedy[line].ids) differing.push_back(line);
  }
  result.differing_lines = std::ssize(differing);
  if (!result.lossless || differing.empty()) return result;
  result.tolerance = kRoundingSafety * measured_rounding(measured, setting, differing, engine);
  result.largest_margin = 0;
  for (const size_t line : differing) {
    const Divergence found = divergence(measured, setting, line, engine);
    result.largest_margin = std::max(*result.largest_margin, found.margin);
    if (found.margin > *result.tolerance && !result.first_unexplained) result.first_unexplained = found;
  }
  return result;
}

std::optional<FirstTokenTest> check_first_tokens(const MeasuredTask& measured, const Setting& setting, uint64_t seed,
                                                 Engine& engine) {
  if (!setting.samples_exactly()) return std::nullopt;
  const SettingRecords& records = measured.records.at(setting.label);
  std::vector<TokenMass> masses;
  for (size_t first = 0; first < records.size(); first += kFirstTokenLines) {
    const size_t count = std::min(kFirstTokenLines, records.size() - first);
    std::vector<std::vector<int64_t>> tokens;
    for (size_t i = 0; i < count; ++i) tokens.push_back(records[first + i].first_tokens);
    if (std::all_of(tokens.begin(), tokens.end(), [](const auto& line) { return line.empty(); })) continue;
    const auto found = engine.first_token_masses(setting, std::span(measured.prompts).subspan(first, count), tokens,
                                                 measured.max_new_tokens);
    masses.insert(masses.end(), found.begin(), found.end());
  }
  if (masses.empty()) return std::nullopt;
  return test_first_tokens(masses, seed, measured.task->name + " " + setting.label);
}

std::vector<Problem> failed_checks(const Results& results, const std::string& file) {
  std::vector<Problem> problems;
  for (const TaskResult& task : results.tasks) {
    for (const SettingFailure& failure : task.failures) {
      problems.push_back(failed_setting(fmt::format("{}, task {}", file, task.name), failure));
    }
    for (const SettingResult* setting : task.rows()) {
      const std::string where = fmt::format("{}, task {}, run {}", file, task.name, setting->name);
      if (setting->failed_lines) problems.push_back(lines_without_output(where, *setting->failed_lines));
      if (setting->lossless_check.value_or(true)) continue;
      if (setting->exactness) problems.push_back(other_tokens(where, *setting->exactness));
      if (setting->first_tokens) problems.push_back(other_distribution(where, *setting->first_tokens));
    }
  }
  return problems;
}

}  // namespace draftsmith::evaluate
