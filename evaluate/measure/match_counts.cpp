#include "evaluate/measure/match_counts.h"

namespace draftsmith::evaluate {
namespace {

std::string name_of(const MatchPrompts& table, const std::string& decoding) {
  return measurement_name({"match rates", table.key, options_hash(table.rates), decoding});
}

nlohmann::json to_json(const std::vector<infer::MatchRate>& cells) {
  nlohmann::json json = nlohmann::json::array();
  for (const infer::MatchRate& cell : cells) {
    json.push_back({cell.decoding, cell.layer, cell.k, cell.trained, cell.positions, cell.matches, cell.tokens});
  }
  return json;
}

infer::MatchRate cell_of(const nlohmann::json& json) {
  return {.decoding = json.at(0),
          .layer = json.at(1),
          .k = json.at(2),
          .trained = json.at(3),
          .positions = json.at(4),
          .matches = json.at(5),
          .tokens = json.at(6)};
}

}  // namespace

std::vector<MatchRateResult> measure_match_rates(const std::vector<MatchPrompts>& tables, Engine& engine,
                                                 MeasurementStore& store, const SuiteContext& context) {
  std::vector<Measurement> measurements;
  for (size_t i = 0; i < tables.size(); ++i) {
    for (const infer::MatchDecoding& decoding : tables[i].rates.options().decodings) {
      const auto count = [&, i, name = decoding.name] {
        MatchRateTable one = tables[i].rates;
        one.decoding = {name};
        return to_json(engine.match_rates(one, tables[i].prompts, tables[i].max_new_tokens));
      };
      measurements.push_back({.name = name_of(tables[i], decoding.name), .measure = count});
    }
  }
  measure_missing(measurements, store, context);
  std::vector<MatchRateResult> results;
  for (const MatchPrompts& table : tables) {
    MatchRateResult& result = results.emplace_back(MatchRateResult{.name = table.rates.name,
                                                                   .task = table.task,
                                                                   .model = table.rates.model,
                                                                   .prompts = std::ssize(table.prompts),
                                                                   .cells = {}});
    for (const infer::MatchDecoding& decoding : table.rates.options().decodings) {
      for (const auto& cell : store.at(name_of(table, decoding.name))) result.cells.push_back(cell_of(cell));
    }
  }
  return results;
}

}  // namespace draftsmith::evaluate
