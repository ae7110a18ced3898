#include "evaluate/report/section_match_rates.h"

#include <algorithm>
#include <functional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/add_new.h"
#include "base/files.h"
#include "base/html.h"
#include "base/svg.h"
#include "evaluate/report/match_rate_plot.h"
#include "evaluate/report/match_rate_text.h"
#include "evaluate/suite/setting_grid.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

// In the order of the cells.
std::vector<std::string> decodings_of(const std::vector<infer::MatchRate>& rates) {
  std::vector<std::string> names;
  for (const infer::MatchRate& rate : rates) add_new(names, rate.decoding);
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

ordered_json match_rates_entry(const MatchRateTable& asked, const std::string& task, int64_t prompts,
                               const std::vector<infer::MatchRate>& rates) {
  return {{"name", asked.name},
          {"task", task},
          {"model", asked.model},
          {"prompts", prompts},
          {"cells", match_rates_json(rates)}};
}

void write_match_rates(const ordered_json& entry, const std::filesystem::path& directory) {
  const std::vector<infer::MatchRate> rates = match_rates_from_json(entry.at("cells"));
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
    const std::vector<infer::MatchRate> rates = match_rates_from_json(entry.at("cells"));
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

}  // namespace draftsmith::evaluate
