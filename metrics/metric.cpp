#include "metrics/metric.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/registry.h"

namespace draftsmith::metrics {
namespace {

using nlohmann::ordered_json;

class Unscored : public Metric {
 public:
  std::string name() const override { return "none"; }
  std::vector<std::string> scores() const override { return {}; }
  LineStatistics statistics(const Segments& /*segments*/) const override { return {}; }
  double score(std::span<const double> /*sums*/, size_t /*which*/) const override { return 0; }
  std::string signature(const References& /*references*/) const override { return "no references: nothing is scored"; }
  std::string text(std::span<const double> /*sums*/, const std::string& signature) const override {
    return signature + "\n";
  }
};

using Make = std::unique_ptr<const Metric> (*)(const MetricOptions&);

const Registry<NamedValue<Make>>& kinds() {
  static const Registry<NamedValue<Make>> kKinds(
      "metric", {{"bleu", make_bleu},
                 {"rouge", make_rouge},
                 {"chrf", make_chrf},
                 {"none", [](const MetricOptions&) { return std::unique_ptr<const Metric>(new Unscored); }},
                 {"command", make_command}});
  return kKinds;
}

// Adds a problem if the metric's name and its command do not belong together.
void check_command(const std::string& name, const std::string& command, const std::string& where, Problems& problems) {
  const std::string at = where.empty() ? "command" : where + ".command";
  const bool blank = command.find_first_not_of(" \t\n") == std::string::npos;
  if (blank && (name == "command" || !command.empty())) {
    problems.add({at, "the metric needs a command", "a command of /bin/sh", "none",
                  "metric = { command = \"python3 score.py\" }"});
  } else if (!blank && name != "command" && name != MetricOptions().name) {
    problems.add({at, "only the metric command runs one", "command alone, or another metric",
                  "name = \"" + name + "\" and a command", ""});
  }
}

// Adds a problem for each option that another metric reads.
void check_owners(const MetricOptions& options, const std::string& where, Problems& problems) {
  const MetricOptions usual;
  const auto check = [&](const std::string& key, const std::string& owner, bool given) {
    if (!given || !options.scored() || options.kind() == owner) return;
    problems.add({where.empty() ? key : where + "." + key, "is an option of the metric " + owner, "none of it",
                  "the metric " + options.kind(), key == "tokenize" ? "a `command` scores texts by other words" : ""});
  };
  check("tokenize", "bleu", options.tokenize.has_value());
  check("stemmer", "rouge", options.stemmer);
  check("chrf_word_order", "chrf", options.chrf_word_order != usual.chrf_word_order);
  check("label", "command", !options.label.empty());
  check("input", "command", options.input != usual.input);
  check("point", "command", options.point != usual.point);
  check("lower_is_better", "command", options.lower_is_better);
  check("timeout", "command", options.timeout != usual.timeout);
}

std::vector<std::string> scored_lines(const Metric& metric, std::vector<std::string> lines) {
  for (std::string& line : lines) line = metric.text_of(line);
  return lines;
}

std::vector<ComparedScore> compare_systems(const Metric& metric, const LineStatistics& ours,
                                           const LineStatistics& others, const ResamplingOptions& resampling) {
  std::vector<ComparedScore> compared;
  const std::vector<std::string> names = metric.scores();
  for (size_t which = 0; which < names.size(); ++which) {
    compared.push_back({names[which], paired_bootstrap(ours, others, metric.function(which), resampling)});
  }
  return compared;
}

ordered_json interval_json(const Interval& interval) {
  return {interval.low, interval.high};
}

}  // namespace

ScoreFunction Metric::function(size_t which) const {
  return [this, which](std::span<const double> sums) { return score(sums, which); };
}

nlohmann::ordered_json Metric::details(std::span<const double> /*sums*/) const {
  return nlohmann::ordered_json::object();
}

std::string Metric::line_of(const std::string& text) const {
  std::string line = text;
  std::ranges::replace_if(
      line, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return line;
}

Fields<MetricOptions> MetricOptions::fields() {
  return Fields<MetricOptions>("metric options")
      .add("name", &MetricOptions::name, Choices(kinds().names()),
           "Metric of the task; none: the task has no references and measures speed only.")
      .add("tokenize", &MetricOptions::tokenize, Choices(bleu_tokenizer_names()),
           "BLEU's tokenizer, as in sacreBLEU. Without it: zh for references in Chinese, char for Japanese, as the "
           "file's ending or the direction says; else 13a.")
      .add("stemmer", &MetricOptions::stemmer, "ROUGE: compare Porter stems, like use_stemmer of rouge_score.")
      .add("chrf_word_order", &MetricOptions::chrf_word_order, Range{0, 2},
           "Highest order of the word n-grams of chrF; 0: chrF, 2: chrF++.")
      .add(
          "command", &MetricOptions::command,
          "Command of /bin/sh that scores: one segment a line on its standard input, one number a line on its standard "
          "output; the score is their mean. Without a name, the metric is command then.")
      .add("label", &MetricOptions::label,
           "Name of the command's score in tables, of at most 16 letters, digits, '-', '_', '.' and '+'; empty: the "
           "program's.")
      .add("input", &MetricOptions::input, Choices{"tsv", "jsonl"},
           "What the command reads. tsv: hypothesis and references, separated by tabs; jsonl: objects with source, "
           "hypothesis and references.")
      .add("point", &MetricOptions::point, Above{0},
           "One point of the command's score, which max_drop counts: 1 on a scale of 100, 0.01 on a scale of 1.")
      .add("lower_is_better", &MetricOptions::lower_is_better, "The command measures errors: a lower score is better.")
      .add("timeout", &MetricOptions::timeout, Range{0}, Unit{"seconds"}, NoResult{},
           "Time that the command may take for a task's lines; 0: any.")
      .check([](const MetricOptions& options, const std::string& where, Problems& problems) {
        const std::string defect = options.label.empty() ? "" : defect_of_label(options.label);
        if (!defect.empty()) {
          problems.add({where.empty() ? "label" : where + ".label", "a score cannot have this name", defect,
                        options.label, "such as comet"});
        }
        check_command(options.name, options.command, where, problems);
        check_owners(options, where, problems);
      });
}

std::unique_ptr<const Metric> make_metric(const MetricOptions& options) {
  return kinds().at(options.kind()).value(options);
}

std::vector<NamedScore> all_scores(const Metric& metric, const LineStatistics& statistics,
                                   const ResamplingOptions& options) {
  std::vector<NamedScore> scores;
  const auto sums = statistics.sum();
  for (const std::string& name : metric.scores()) {
    const size_t which = scores.size();
    scores.push_back(
        {name, metric.score(sums, which), bootstrap_interval(statistics, metric.function(which), options)});
  }
  return scores;
}

std::vector<std::string> scoring_metrics() {
  std::vector<std::string> names = kinds().names();
  std::erase(names, "none");
  return names;
}

void require_scoring_metric(const std::string& name) {
  const std::vector<std::string> known = scoring_metrics();
  if (std::find(known.begin(), known.end(), name) == known.end()) throw UserError(unknown_name("metric", name, known));
}

ScoreReport score_texts(const Metric& metric, const ScoredTexts& texts, const ResamplingOptions& resampling) {
  const References references = references_from_streams(
      from_each(texts.references, [&](const auto& stream) { return scored_lines(metric, stream); }));
  const auto statistics_of = [&](const std::vector<std::string>& lines) {
    return metric.statistics({.hypotheses = lines, .references = references, .sources = texts.sources});
  };
  const std::vector<std::string> own = scored_lines(metric, texts.hypotheses);
  const LineStatistics statistics = statistics_of(own);
  ScoreReport report{.signature = metric.signature(references),
                     .lines = statistics.lines(),
                     .sums = statistics.sum(),
                     .scores = all_scores(metric, statistics, resampling),
                     .compared = {}};
  report.warning = metric.warning({.hypotheses = own, .references = references});
  if (texts.other_system) {
    report.compared =
        compare_systems(metric, statistics, statistics_of(scored_lines(metric, *texts.other_system)), resampling);
  }
  return report;
}

ordered_json to_json(const Metric& metric, const ScoreReport& report) {
  ordered_json json{{"metric", metric.name()}, {"lines", report.lines}, {"signature", report.signature}};
  if (!report.warning.empty()) json["warning"] = report.warning;
  for (const NamedScore& score : report.scores) {
    json[score.name] = score.value;
    json[score.name + "_ci95"] = interval_json(score.interval);
  }
  json.update(metric.details(report.sums));
  for (const ComparedScore& compared : report.compared) {
    auto& entry = json["compared"][compared.score];
    entry["other"] = compared.bootstrap.score_b;
    entry["bootstrap"] = {{"difference", compared.bootstrap.difference},
                          {"p_value", compared.bootstrap.p_value},
                          {"difference_ci95", interval_json(compared.bootstrap.difference_interval)}};
  }
  return json;
}

}  // namespace draftsmith::metrics
