#include "evaluate/report/match_rate_text.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/add_new.h"
#include "base/text_table.h"

namespace draftsmith::evaluate {

namespace {

const char* head_name(const infer::MatchRate& rate) {
  return rate.trained ? "trained" : "own";
}

bool same_row(const infer::MatchRate& a, const infer::MatchRate& b) {
  return a.layer == b.layer && a.k == b.k && a.trained == b.trained;
}

std::string percentage(const infer::MatchRate& rate) {
  return rate.tokens == 0 ? "" : fmt::format("{:.1f}", 100 * rate.rate());
}

// A row for each layer, k and head of some cells, with a column for each of the names that `column` gives.
template <class ColumnOf>
std::string table_of(std::span<const infer::MatchRate> rates, const ColumnOf& column) {
  std::vector<std::string> names;
  std::vector<infer::MatchRate> rows;  // the first cell of each
  for (const infer::MatchRate& rate : rates) {
    add_new(names, column(rate));
    const auto known = [&](const infer::MatchRate& row) { return same_row(row, rate); };
    if (std::none_of(rows.begin(), rows.end(), known)) rows.push_back(rate);
  }
  std::vector<Column> columns{{"layer"}, {"k"}, {"head", Align::kLeft}};
  for (const std::string& name : names) columns.push_back({name});
  TextTable table(std::move(columns));
  for (const infer::MatchRate& row : rows) {
    std::vector<std::string> cells{std::to_string(row.layer), std::to_string(row.k), head_name(row)};
    for (const std::string& name : names) {
      const auto found = std::find_if(rates.begin(), rates.end(), [&](const infer::MatchRate& rate) {
        return same_row(rate, row) && column(rate) == name;
      });
      cells.push_back(found == rates.end() ? "" : percentage(*found));
    }
    table.add_row(std::move(cells));
  }
  return table.str();
}

std::vector<infer::MatchRate> those(std::span<const infer::MatchRate> rates, const auto& wanted) {
  std::vector<infer::MatchRate> chosen;
  std::copy_if(rates.begin(), rates.end(), std::back_inserter(chosen), wanted);
  return chosen;
}

}  // namespace

std::string match_rates_csv(std::span<const infer::MatchRate> rates) {
  std::string csv = "decoding,layer,k,head,positions,matches,tokens,rate\n";
  for (const infer::MatchRate& rate : rates) {
    csv += fmt::format("{},{},{},{},{},{},{},{}\n", rate.decoding, rate.layer, rate.k, head_name(rate), rate.positions,
                       rate.matches, rate.tokens, rate.tokens == 0 ? "" : fmt::format("{:.6f}", rate.rate()));
  }
  return csv;
}

nlohmann::ordered_json match_rates_json(std::span<const infer::MatchRate> rates) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const infer::MatchRate& rate : rates) {
    nlohmann::ordered_json cell{{"decoding", rate.decoding}, {"layer", rate.layer},         {"k", rate.k},
                                {"head", head_name(rate)},   {"positions", rate.positions}, {"matches", rate.matches},
                                {"tokens", rate.tokens}};
    if (rate.tokens > 0) cell["rate"] = rate.rate();
    list.push_back(std::move(cell));
  }
  return list;
}

std::vector<infer::MatchRate> match_rates_from_json(const nlohmann::ordered_json& json) {
  std::vector<infer::MatchRate> rates;
  for (const auto& cell : json) {
    rates.push_back({cell.at("decoding"), cell.at("layer"), cell.at("k"), cell.at("head") == "trained",
                     cell.at("positions"), cell.at("matches"), cell.at("tokens")});
  }
  return rates;
}

std::string match_totals_table(std::span<const infer::MatchRate> rates) {
  const auto totals = those(rates, [](const infer::MatchRate& rate) { return rate.positions == "total"; });
  if (totals.empty()) return "";
  return "match rates of early predictions, % of new tokens\n" +
         table_of(totals, [](const infer::MatchRate& rate) { return rate.decoding; });
}

std::string match_positions_table(std::span<const infer::MatchRate> rates, const std::string& decoding) {
  const auto own = those(rates, [&](const infer::MatchRate& rate) { return rate.decoding == decoding; });
  if (own.empty()) return "";
  return fmt::format("match rates of early predictions by position, % of new tokens, {} decoding\n", decoding) +
         table_of(own, [](const infer::MatchRate& rate) { return rate.positions; });
}

}  // namespace draftsmith::evaluate
