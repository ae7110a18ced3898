#include "evaluate/results/group_choice.h"

#include "evaluate/measure/speed.h"
#include "evaluate/suite/task_metric.h"

namespace draftsmith::evaluate {
namespace {

// Returns the measured settings of the member's group, with what they lose of the leading score of `metric`.
std::vector<Candidate> candidates_of(const MeasuredTask& measured, const Setting& member,
                                     const metrics::Metric& metric) {
  const metrics::ResamplingOptions few{.resamples = 1, .seed = 1, .confidence = 0.95};  // only the values are used
  const auto score_of = [&](const std::string& label) { return metric.score(measured.statistics.at(label).sum(), 0); };
  const double baseline = score_of(baseline_of(member).label);
  std::vector<Candidate> candidates;
  for (const SettingRow& row : measured.rows) {
    const Setting& setting = row.settings;
    if (setting.group != member.group || setting.choose_on != member.choose_on) continue;
    const Speed speed =
        measure_speed(measured.records.at(setting.label), measured.records.at(baseline_of(setting).label), few);
    const double drop = metric.loss(baseline, score_of(setting.label)) / metric.point();
    candidates.push_back({setting.label, drop, speed.speedup.value});
  }
  return candidates;
}

}  // namespace

std::optional<Choice> choose_in_group(const MeasuredTask& measured, const Setting& member, double max_drop) {
  const auto metric = task_metric(*measured.task);
  const std::vector<Candidate> candidates = candidates_of(measured, member, *metric);
  if (candidates.empty()) return std::nullopt;
  std::optional<Choice> choice = choose(candidates, max_drop);
  choice->task = member.choose_on;
  return choice;
}

}  // namespace draftsmith::evaluate
