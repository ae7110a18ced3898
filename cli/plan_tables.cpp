#include "cli/plan_tables.h"

#include <algorithm>
#include <iostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/table.h"
#include "evaluate/theory/formulas.h"

namespace draftsmith::cli {
namespace {

using infer::StepCosts;
using nlohmann::ordered_json;

infer::StepCosts costs_of(const SpeculativeQuestion& asked, double cost_ratio) {
  return {.target = asked.curve, .draft = cost_ratio * asked.curve.front()};
}

// Returns one row for each window, for one acceptance rate and one cost ratio.
ordered_json windows_json(const SpeculativeQuestion& asked, double alpha, double cost_ratio) {
  const infer::StepCosts costs = costs_of(asked, cost_ratio);
  const evaluate::BestWindow best = evaluate::best_window(alpha, costs, asked.max_window);
  ordered_json json{{"alpha", alpha},
                    {"cost_ratio", cost_ratio},
                    {"best_window", best.window},
                    {"best_speedup", best.speedup},
                    {"windows", ordered_json::array()}};
  for (int64_t window = 0; window <= asked.max_window; ++window) {
    json["windows"].push_back({{"window", window},
                               {"tokens_per_target_run", evaluate::expected_tokens(alpha, window)},
                               {"speedup", evaluate::walltime_improvement(alpha, window, costs)},
                               {"operations", evaluate::operations_factor(alpha, window, asked.operations_ratio)}});
  }
  return json;
}

std::string best_sentence(const ordered_json& plan) {
  const double alpha = plan["alpha"];
  const double cost_ratio = plan["cost_ratio"];
  if (plan["best_window"] == 0) {
    return fmt::format("No window is faster than the target alone (alpha {:g}, cost ratio {:g}).\n", alpha, cost_ratio);
  }
  return fmt::format("Best window {}: {:.2f} times as fast as the target alone (alpha {:g}, cost ratio {:g}).\n",
                     plan["best_window"].get<int64_t>(), plan["best_speedup"].get<double>(), alpha, cost_ratio);
}

std::string origins_text(const std::vector<std::string>& origins) {
  std::string text;
  for (const std::string& line : origins) text += cut_to_width(line, 100) + "\n";
  return text;
}

void print_windows(const ordered_json& plan) {
  // A few windows after the best one show that the curve has turned.
  const int64_t shown = std::max<int64_t>(plan["best_window"].get<int64_t>() + 3, 8);
  Table table({{"window"}, {"tokens per target run"}, {"speedup"}, {"operations"}, {"", Align::kLeft}});
  for (const auto& row : plan["windows"]) {
    const int64_t window = row["window"];
    if (window > shown) break;
    table.add_row({std::to_string(window), fmt::format("{:.3f}", row["tokens_per_target_run"].get<double>()),
                   fmt::format("{:.3f}", row["speedup"].get<double>()),
                   fmt::format("{:.3f}", row["operations"].get<double>()),
                   window == plan["best_window"] ? "best" : ""});
  }
  std::cout << table.text() << best_sentence(plan);
}

// Prints the best window and its speedup for each acceptance rate (rows) and cost ratio (columns): the paper's
// Figure 3.
void print_best_windows(const SpeculativeQuestion& asked, const ordered_json& plans) {
  std::vector<Column> columns{{"alpha"}};
  for (const double cost_ratio : asked.cost_ratios) columns.push_back({fmt::format("c = {:g}", cost_ratio)});
  Table table(columns);
  auto plan = plans.begin();
  for (const double alpha : asked.alphas) {
    std::vector<std::string> cells{fmt::format("{:g}", alpha)};
    for (size_t i = 0; i < asked.cost_ratios.size(); ++i, ++plan) {
      cells.push_back(
          fmt::format("{}: {:.2f}x", (*plan)["best_window"].get<int64_t>(), (*plan)["best_speedup"].get<double>()));
    }
    table.add_row(cells);
  }
  std::cout << "Best window and its speedup; 0 is the target alone.\n" << table.text();
}

// Returns `setting` with the candidates and match rate of a text such as "3:0.54". Errors: UserError.
evaluate::PpdSetting parse_match(const std::string& text, evaluate::PpdSetting setting) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos || !CLI::detail::lexical_cast(text.substr(0, colon), setting.candidates) ||
      !CLI::detail::lexical_cast(text.substr(colon + 1), setting.match_rate) || setting.candidates < 1 ||
      !(setting.match_rate >= 0 && setting.match_rate <= 1)) {
    throw UserError({.where = "draftsmith plan ppd --match",
                     .what = "this is not a pair of candidates and match rate",
                     .expected = "K:RATE, a number of candidates of at least 1 and a rate in 0..1",
                     .found = "'" + text + "'",
                     .hint = "for example --match 3:0.54"});
  }
  return setting;
}

}  // namespace

void print_speculative(SpeculativeQuestion asked) {
  if (asked.alphas.empty()) asked.alphas = {0.5, 0.6, 0.7, 0.8, 0.9, 0.95};
  if (asked.cost_ratios.empty()) asked.cost_ratios = {0.01, 0.02, 0.05, 0.1, 0.2, 0.5};
  ordered_json plans = ordered_json::array();
  for (const double alpha : asked.alphas) {
    for (const double cost_ratio : asked.cost_ratios) plans.push_back(windows_json(asked, alpha, cost_ratio));
  }
  if (asked.json) {
    std::cout << plans.dump(2) << "\n";
    return;
  }
  std::cout << origins_text(asked.origins);
  if (plans.size() == 1) {
    print_windows(plans.front());
  } else {
    print_best_windows(asked, plans);
  }
}

void print_specgame(const SpecGameQuestion& asked) {
  const infer::StepCosts costs{.target = asked.target_ms, .draft = asked.draft_ms};
  const double alone = costs.target.front();
  Table table({{"method", Align::kLeft}, {"K"}, {"P"}, {"E_pt ms"}, {"long-run ms"}, {"speedup"}});
  ordered_json rows = ordered_json::array();
  const auto add = [&](const char* method, int64_t drafted, double acceptance) {
    const evaluate::SpecGameLatency latency = evaluate::specgame_latency(acceptance, drafted, costs);
    table.add_row({method, std::to_string(drafted), drafted > 0 ? fmt::format("{:g}", acceptance) : "",
                   fmt::format("{:.3f}", latency.e_pt), fmt::format("{:.3f}", latency.long_run),
                   fmt::format("{:.3f}", alone / latency.long_run)});
    rows.push_back({{"method", method},
                    {"draft_tokens", drafted},
                    {"acceptance", acceptance},
                    {"e_pt_ms", latency.e_pt},
                    {"long_run_ms", latency.long_run},
                    {"speedup", alone / latency.long_run}});
  };
  add("ArD", 0, 0);
  const auto add_all = [&](const char* method, const std::vector<double>& rates) {
    for (const double rate : rates) {
      table.add_rule();
      for (int64_t drafted = 1; drafted <= asked.max_tokens; ++drafted) add(method, drafted, rate);
    }
  };
  add_all("SpS", asked.acceptance);
  add_all("AsG", asked.agreement);
  std::cout << (asked.json ? rows.dump(2) + "\n" : origins_text(asked.origins) + table.text());
}

void print_ppd(const PpdQuestion& asked) {
  evaluate::PpdSetting setting{.layers = asked.layers, .early_layer = asked.early_layer};
  if (setting.early_layer == 0) setting.early_layer = (setting.layers + 1) / 2;
  if (setting.early_layer > setting.layers || 2 * setting.early_layer < setting.layers) {
    throw UserError({.where = "draftsmith plan ppd --early-layer",
                     .what = "the theorem holds only for predictions in the upper half of the layers",
                     .expected = fmt::format("{} to {}", (setting.layers + 1) / 2, setting.layers),
                     .found = std::to_string(setting.early_layer),
                     .hint = ""});
  }
  Table table({{"k"}, {"match rate"}, {"latency"}, {"speedup"}, {"long-run speedup"}, {"units in use"}, {"compute"}});
  ordered_json rows = ordered_json::array();
  const double alone = static_cast<double>(setting.layers * asked.tokens);
  for (const std::string& match : asked.matches) {
    setting = parse_match(match, setting);
    const evaluate::PpdCost cost = evaluate::ppd_cost(setting, asked.tokens);
    const double long_run = static_cast<double>(setting.layers) / evaluate::ppd_cost_per_token(setting).latency;
    table.add_row({std::to_string(setting.candidates), fmt::format("{:g}", setting.match_rate),
                   fmt::format("{:.1f}", cost.latency), fmt::format("{:.3f}", alone / cost.latency),
                   fmt::format("{:.3f}", long_run), fmt::format("{:.3f}", cost.units_in_use()),
                   fmt::format("{:.1f}", cost.compute)});
    rows.push_back({{"candidates", setting.candidates},
                    {"match_rate", setting.match_rate},
                    {"latency", cost.latency},
                    {"speedup", alone / cost.latency},
                    {"long_run_speedup", long_run},
                    {"units_in_use", cost.units_in_use()},
                    {"compute", cost.compute}});
  }
  if (asked.json) {
    std::cout << rows.dump(2) << "\n";
  } else {
    std::cout << fmt::format(
                     "{} tokens, {} layers, early prediction at layer {}.\n"
                     "Latency and compute in layers; decoding alone takes {:.0f}.\n",
                     asked.tokens, setting.layers, setting.early_layer, alone)
              << table.text();
  }
}

}  // namespace draftsmith::cli
