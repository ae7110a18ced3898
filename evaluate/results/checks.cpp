#include "evaluate/results/lossless_checks.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace draftsmith::evaluate {
namespace {

constexpr size_t kRoundingLines = 4;     // lines on which rounding is measured
constexpr size_t kFirstTokenLines = 16;  // lines in a pass over first tokens

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

}  // namespace

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
  result.unexplained_lines = 0;
  result.largest_margin = 0;
  for (const size_t line : differing) {
    const Divergence found = divergence(measured, setting, line, engine);
    result.largest_margin = std::max(*result.largest_margin, found.margin);
    if (found.margin <= *result.tolerance) continue;
    ++*result.unexplained_lines;
    if (!result.first_unexplained) result.first_unexplained = found;
  }
  result.explained_by_rounding = result.unexplained_lines == 0;
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

}  // namespace draftsmith::evaluate
