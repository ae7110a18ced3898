#include "infer/evaluation_match_rates.h"

#include <algorithm>
#include <functional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/files.h"
#include "infer/evaluation_runs.h"
#include "infer/match_rate_plot.h"
#include "infer/report.h"
#include "infer/svg.h"
#include "infer/values.h"

namespace draftsmith::infer {
namespace {

using nlohmann::ordered_json;

std::vector<std::string> decoding_names() {
  std::vector<std::string> names;
  for (const MatchDecoding& decoding : paper_decodings()) names.push_back(decoding.name);
  return names;
}

void check_rising(const std::vector<int64_t>& layers, const std::string& where, Problems& problems) {
  if (std::adjacent_find(layers.begin(), layers.end(), std::greater_equal<>()) == layers.end()) return;
  problems.add({where, "layers are given twice or out of order", "rising layers",
                fmt::format("[{}]", fmt::join(layers, ", ")), ""});
}

// Some values, none of them twice.
template <class T>
void check_once(const std::vector<T>& values, const std::string& where, Problems& problems) {
  if (!values.empty() && std::set<T>(values.begin(), values.end()).size() == values.size()) return;
  problems.add({where, values.empty() ? "there is nothing to count" : "a value is given twice",
                "at least one value, each once", fmt::format("[{}]", fmt::join(values, ", ")),
                values.empty() ? "leave it out for the default" : ""});
}

// In the order of the cells.
std::vector<std::string> decodings_of(const std::vector<MatchRate>& rates) {
  std::vector<std::string> names;
  for (const MatchRate& rate : rates) add_new(names, rate.decoding);
  return names;
}

std::string heading(const ordered_json& entry) {
  const std::string name = entry.at("name");
  return fmt::format("match rates of early predictions{} ({} prompts of {}, model {})", name.empty() ? "" : ": " + name,
                     entry.at("prompts").dump(), entry.at("task").get<std::string>(),
                     entry.at("model").get<std::string>());
}

const ordered_json& entries(const ordered_json& results) {
  static const ordered_json kNone = ordered_json::array();
  return results.contains("match_rates") ? results.at("match_rates") : kNone;
}

}  // namespace

Fields<EvaluationMatchRates> EvaluationMatchRates::fields() {
  using E = EvaluationMatchRates;
  return Fields<E>("match rates of early predictions")
      .add("name", &E::name, "Name in files and results, where there are several.")
      .add("task", &E::task, "Task whose prompts are decoded; empty: the first.")
      .add("model", &E::model, "Model that decodes and predicts: \"target\", or a drafter's name.")
      .add("exits", &E::exits, "Directory of its exits; empty: its own, if it has any.")
      .add("layers", &E::layers, Range{1}, Unit{"layers"}, "Layers that predict; empty: all but the last.")
      .add("candidates", &E::candidates, Range{1}, Unit{"tokens"}, "Most likely tokens k that count as predicted.")
      .add("decoding", &E::decoding, Choices(decoding_names()),
           "How outputs are made: greedy decoding, sampling among 3 tokens or from a mass of 0.95.")
      .add("positions", &E::positions, Range{1}, Unit{"tokens"}, "New tokens in a bin of positions.")
      .add("bins", &E::bins, Range{1, 8}, "Bins; what comes after them is one more.")
      .add("prompts", &E::prompts, Range{1}, Unit{"lines"}, "First lines of the task.")
      .check([](const E& rates, const std::string& where, Problems& problems) {
        const std::string dot = where.empty() ? "" : where + ".";
        check_rising(rates.layers, dot + "layers", problems);
        check_once(rates.candidates, dot + "candidates", problems);
        check_once(rates.decoding, dot + "decoding", problems);
      });
}

MatchRateOptions EvaluationMatchRates::options() const {
  MatchRateOptions options;
  options.layers = layers;
  options.candidates = candidates;
  options.bin = positions;
  options.bins = bins;
  std::erase_if(options.decodings, [&](const MatchDecoding& one) {
    return std::find(decoding.begin(), decoding.end(), one.name) == decoding.end();
  });
  return options;
}

ordered_json match_rates_entry(const EvaluationMatchRates& asked, const std::string& task, int64_t prompts,
                               const std::vector<MatchRate>& rates) {
  return {{"name", asked.name},
          {"task", task},
          {"model", asked.model},
          {"prompts", prompts},
          {"cells", match_rates_json(rates)}};
}

void write_match_rates(const ordered_json& entry, const std::filesystem::path& directory) {
  const std::vector<MatchRate> rates = match_rates_from_json(entry.at("cells"));
  const std::string name = entry.at("name");
  std::string stem = "match_rates";
  if (!name.empty()) stem.append(".").append(file_safe(name));
  write_file_atomic(directory / (stem + ".csv"), match_rates_csv(rates));
  for (const std::string& decoding : decodings_of(rates)) {
    const std::string svg = match_rate_svg(rates, decoding);
    if (svg.empty()) continue;
    write_file_atomic(directory / fmt::format("{}.{}.svg", stem, file_safe(decoding)), standalone_svg(svg));
  }
}

std::string match_rates_text(const ordered_json& results) {
  std::string text;
  for (const auto& entry : entries(results)) {
    if (!text.empty()) text += '\n';
    text += fmt::format("{}\n{}", heading(entry), match_totals_table(match_rates_from_json(entry.at("cells"))));
  }
  return text;
}

std::string match_rates_section(const ordered_json& results) {
  std::string html;
  for (const auto& entry : entries(results)) {
    const std::vector<MatchRate> rates = match_rates_from_json(entry.at("cells"));
    html += fmt::format(
        "<h2>{}</h2>\n<p>The share of new tokens that are among the k which a layer finds most likely, by position in "
        "the "
        "output: through the model's own final norm and head, and through the layer's trained exit.</p>\n",
        escape_html(heading(entry)));
    for (const std::string& decoding : decodings_of(rates)) {
      html += fmt::format("<h3>{}</h3>\n{}", escape_html(decoding), match_rate_svg(rates, decoding));
    }
  }
  return html;
}

}  // namespace draftsmith::infer
