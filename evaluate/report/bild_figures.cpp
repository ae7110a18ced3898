// BiLD's figures (Kim et al. 2023) in a report: operations and bytes beside greedy decoding (figure 8), and quality
// against the share of tokens that the large model decides (figure 2).
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/plots.h"
#include "base/table.h"
#include "base/util.h"
#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {
namespace {

Table work_table(const std::vector<const SettingResult*>& settings) {
  constexpr double kMillion = 1e6;
  Table table({{"run", Align::kLeft},
               {"MFLOP", Align::kRight, "operations for a new token, encoders and prompts included"},
               {"MB", Align::kRight, "bytes of weights, keys and values read for a new token"},
               {"FLOP/B", Align::kRight, "operations for each byte: the arithmetic intensity"},
               {"FLOP x", Align::kRight, "operations over those of greedy decoding"},
               {"MB x", Align::kRight, "bytes over those of greedy decoding"},
               {"FLOP/B x", Align::kRight, "intensity over that of greedy decoding"},
               {"decode x", Align::kRight, "operations over greedy decoding's, without encoders and prompts"},
               {"theory x", Align::kRight, "the same by Leviathan et al., theorem 3.11, at the measured alpha"}});
  for (const SettingResult* setting : settings) {
    const WorkResult& work = *setting->work;
    table.add_row({setting->name, fixed(work.operations_per_token / kMillion, 3),
                   fixed(work.bytes_per_token / kMillion, 3), fixed(work.intensity(), 2),
                   fixed(work.operations_ratio, 2), fixed(work.bytes_ratio, 2), fixed(work.intensity_ratio, 2),
                   fixed(work.decode_operations_ratio, 2), fixed(work.theory_operations_ratio, 2)});
  }
  table.drop_empty_columns();
  return table;
}

constexpr const char* kWorkMeaning =
    ": operations and bytes for a new token, counted from shapes and runs: products and attention; weights once a "
    "step, keys and values; x: over greedy decoding's; decode: without encoders and prompts; theory: theorem 3.11 of "
    "Leviathan et al. for fixed windows";

// Returns the name of the leading score; empty if nothing is scored.
std::string leading_score(const EngagementResult& curve) {
  return curve.large.scores.empty() ? "" : curve.large.scores.front().name;
}

std::string percent(double share) {
  return fixed(100 * share, 1);
}

PlotPoint engagement_mark(const EngagementPoint& point, const std::string& score) {
  const metrics::NamedScore& quality = *point.quality.find(score);
  PlotPoint mark{.x = 100 * point.engaged_share(),
                 .y = quality.value,
                 .title = fmt::format("{} at {:g}: {} % of the tokens, {} {:.4g}", point.policy, point.threshold,
                                      percent(point.engaged_share()), score_words(score), quality.value),
                 .label = fmt::format("{:g}", point.threshold)};
  if (const auto& difference = point.quality.difference) {
    const double large = quality.value - difference->value;
    mark.y_interval = {large + difference->interval.low, large + difference->interval.high};
  }
  return mark;
}

// Returns the curve of each policy, and a line at the quality of the large model alone.
Plot engagement_plot(const EngagementResult& curve) {
  const std::string score = leading_score(curve);
  Plot plot{.label = "quality against the large model's share of the tokens, small model " + curve.drafter,
            .x_title = "tokens that the large model decides, %",
            .y_title = score_words(score),
            .series = {},
            .levels = {{curve.large.scores.front().value, "the large model alone"}}};
  std::vector<std::string> policies;
  for (const EngagementPoint& point : curve.points) add_new(policies, point.policy);
  for (const std::string& policy : policies) {
    PlotSeries series{.name = policy, .style = series_style(plot.series.size())};
    for (const EngagementPoint& point : curve.points) {
      if (point.policy == policy) series.marks.push_back(engagement_mark(point, score));
    }
    series.line = series.marks;
    std::ranges::stable_sort(series.line, {}, &PlotPoint::x);
    series.line_title = policy;
    plot.series.push_back(std::move(series));
  }
  return plot;
}

Table engagement_table(const EngagementResult& curve, int digits) {
  const std::string score = leading_score(curve);
  Table table({{"policy", Align::kLeft},
               {"threshold"},
               {"large %", Align::kRight, "share of tokens that the large model decides"},
               {"changed %", Align::kRight, "share of tokens where its choice differs from the small model's"},
               {score_words(score)},
               {"difference", Align::kRight, "from the large model alone, with a paired 95 % interval"}});
  for (const EngagementPoint& point : curve.points) {
    const auto& difference = point.quality.difference;
    std::string difference_text = difference ? fmt::format("{:+.{}f}", difference->value, digits) : "";
    if (difference && std::isfinite(difference->interval.low)) {
      difference_text +=
          fmt::format(" [{:+.{}f}, {:+.{}f}]", difference->interval.low, digits, difference->interval.high, digits);
    }
    table.add_row(
        {point.policy, fmt::format("{:g}", point.threshold), percent(point.engaged_share()),
         point.changed ? percent(static_cast<double>(*point.changed) / static_cast<double>(point.tokens)) : "",
         fixed(point.quality.find(score)->value, digits), difference_text});
  }
  table.drop_empty_columns();
  return table;
}

constexpr const char* kEngagementMeaning =
    "The oracle runs both models for every token and lets the large one decide where it gives the small model's token "
    "a probability below the threshold. It bounds rules that do not know that probability, and saves no time itself. "
    "With fallback the large model decides where the small model's largest probability is below the threshold; nothing "
    "is rolled back.";

}  // namespace

std::vector<Part> work_parts(const TaskView& view, Form /*form*/) {
  std::vector<const SettingResult*> settings = view.task.rows();
  std::erase_if(settings, [](const SettingResult* setting) { return !setting->work || setting->repeats; });
  if (settings.empty()) return {};
  return {{.caption = view.task.name + kWorkMeaning, .table = work_table(settings)}};
}

std::vector<Part> engagement_parts(const TaskView& view, Form form) {
  std::vector<Part> parts;
  const int digits = metric_of(view.task)->digits();
  for (const EngagementResult& curve : view.results.engagement) {
    if (curve.task != view.task.name || leading_score(curve).empty()) continue;
    Part& part = parts.emplace_back();
    part.caption = fmt::format("engagement of the large model{}: small model {}, {} lines of {}",
                               curve.name.empty() ? "" : ", " + curve.name, curve.drafter, curve.lines, curve.task);
    part.table = engagement_table(curve, digits);
    part.notes = {fmt::format("  the large model alone: {} {}", score_words(leading_score(curve)),
                              fixed(curve.large.scores.front().value, digits))};
    if (form == Form::kBrief) continue;
    part.notes.emplace_back(kEngagementMeaning);
    part.figures = {figure_of(engagement_plot(curve),
                              "Quality by how many tokens the large model decides. Marks have their thresholds; "
                              "whiskers are those of the difference from the large model alone.")};
  }
  return parts;
}

}  // namespace draftsmith::evaluate
