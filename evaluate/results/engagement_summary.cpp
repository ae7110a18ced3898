#include "evaluate/results/engagement_summary.h"

#include <limits>
#include <memory>

#include "evaluate/results/scoring.h"
#include "evaluate/suite/task_metric.h"

namespace draftsmith::evaluate {
namespace {

double share_of(int64_t part, int64_t tokens) {
  return tokens == 0 ? std::numeric_limits<double>::quiet_NaN()
                     : static_cast<double>(part) / static_cast<double>(tokens);
}

// Scores of a task's first lines, against those of the large model alone.
class EngagementScores {
 public:
  EngagementScores(const EngagementPrompts& curve, const MeasuredTask& task, const SuiteOptions& options,
                   const Engine& engine)
      : task_(task),
        engine_(engine),
        metric_(task_metric(*task.task)),
        resampling_{.resamples = options.resamples, .seed = options.seed, .confidence = 0.95} {
    const auto lines = std::ssize(curve.prompts);
    const std::vector<std::string>& all = task.hypotheses.at(greedy_baseline().label);
    large_ = statistics(std::vector<std::string>(all.begin(), all.begin() + lines));
  }

  Quality large() const { return {.scores = metrics::all_scores(*metric_, large_, resampling_), .difference = {}}; }

  Quality of(const infer::EngagedOutputs& outputs) const {
    std::vector<std::string> lines;
    for (const auto& ids : outputs.ids) lines.push_back(metric_->line_of(engine_.text(ids, task_.task->ids)));
    const metrics::LineStatistics own = statistics(lines);
    const metrics::PairedTest test = metrics::paired_bootstrap(own, large_, metric_->function(), resampling_);
    return {.scores = metrics::all_scores(*metric_, own, resampling_),
            .difference = QualityDifference{
                .value = test.difference, .interval = test.difference_interval, .p_value = test.p_value}};
  }

 private:
  metrics::LineStatistics statistics(const std::vector<std::string>& lines) const {
    std::vector<std::string> texts;
    for (const std::string& line : lines) texts.push_back(metric_->text_of(line));
    return statistics_of(*metric_, texts, task_.data);
  }

  const MeasuredTask& task_;
  const Engine& engine_;
  std::unique_ptr<const metrics::Metric> metric_;
  metrics::ResamplingOptions resampling_;
  metrics::LineStatistics large_;
};

}  // namespace

double EngagementPoint::engaged_share() const {
  return share_of(engaged, tokens);
}

std::optional<double> EngagementPoint::changed_share() const {
  return changed ? std::optional(share_of(*changed, tokens)) : std::nullopt;
}

EngagementResult engagement_result(const EngagementPrompts& curve, const std::vector<MeasuredEngagement>& points,
                                   const MeasuredTask& task, const SuiteOptions& options, const Engine& engine) {
  const EngagementScores scores(curve, task, options, engine);
  EngagementResult result{.name = curve.table.name,
                          .task = curve.task,
                          .drafter = curve.table.drafter,
                          .lines = std::ssize(curve.prompts),
                          .large = scores.large(),
                          .points = {}};
  for (const MeasuredEngagement& point : points) {
    result.points.push_back({.policy = infer::engagement_policies().name(point.policy),
                             .threshold = point.threshold,
                             .tokens = point.outputs.tokens,
                             .engaged = point.outputs.engaged,
                             .changed = point.outputs.changed,
                             .quality = scores.of(point.outputs)});
  }
  return result;
}

}  // namespace draftsmith::evaluate
