// `draftsmith plan`: what the papers' formulas (infer/theory.h) promise before anything is trained or measured.
#include <iostream>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text_table.h"
#include "cli/commands.h"
#include "infer/theory.h"

namespace draftsmith::cli {
namespace {

using infer::StepCosts;
using nlohmann::ordered_json;

// ---- draftsmith plan speculative

struct SpeculativeFlags {
  std::vector<double> alphas;
  std::vector<double> cost_ratios;
  std::vector<double> curve = {1};
  double operations_ratio = 0;
  int64_t max_window = 64;
  bool json = false;
};

StepCosts costs_of(const SpeculativeFlags& flags, double cost_ratio) {
  return {.target = flags.curve, .draft = cost_ratio * flags.curve.front()};
}

// One row a window, for one acceptance rate and one cost ratio.
ordered_json windows_json(const SpeculativeFlags& flags, double alpha, double cost_ratio) {
  const StepCosts costs = costs_of(flags, cost_ratio);
  const infer::BestWindow best = infer::best_window(alpha, costs, flags.max_window);
  ordered_json json{{"alpha", alpha},
                    {"cost_ratio", cost_ratio},
                    {"best_window", best.window},
                    {"best_speedup", best.speedup},
                    {"windows", ordered_json::array()}};
  for (int64_t window = 0; window <= flags.max_window; ++window) {
    json["windows"].push_back({{"window", window},
                               {"tokens_per_target_run", infer::expected_tokens(alpha, window)},
                               {"speedup", infer::walltime_improvement(alpha, window, costs)},
                               {"operations", infer::operations_factor(alpha, window, flags.operations_ratio)}});
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

void print_windows(const ordered_json& plan) {
  // Windows far beyond the best one tell nothing: a few more show that the curve has turned.
  const int64_t shown = std::max<int64_t>(plan["best_window"].get<int64_t>() + 3, 8);
  TextTable table({{"window"}, {"tokens per target run"}, {"speedup"}, {"operations"}, {"", Align::kLeft}});
  for (const auto& row : plan["windows"]) {
    const int64_t window = row["window"];
    if (window > shown) break;
    table.add_row({std::to_string(window), fmt::format("{:.3f}", row["tokens_per_target_run"].get<double>()),
                   fmt::format("{:.3f}", row["speedup"].get<double>()),
                   fmt::format("{:.3f}", row["operations"].get<double>()),
                   window == plan["best_window"] ? "best" : ""});
  }
  std::cout << table.str() << best_sentence(plan);
}

// Rows: acceptance rates; columns: cost ratios; cells: best window and its speedup (Figure 3 of the paper).
void print_best_windows(const SpeculativeFlags& flags, const ordered_json& plans) {
  std::vector<Column> columns{{"alpha"}};
  for (const double cost_ratio : flags.cost_ratios) columns.push_back({fmt::format("c = {:g}", cost_ratio)});
  TextTable table(columns);
  auto plan = plans.begin();
  for (const double alpha : flags.alphas) {
    std::vector<std::string> cells{fmt::format("{:g}", alpha)};
    for (size_t i = 0; i < flags.cost_ratios.size(); ++i, ++plan) {
      cells.push_back(
          fmt::format("{}: {:.2f}x", (*plan)["best_window"].get<int64_t>(), (*plan)["best_speedup"].get<double>()));
    }
    table.add_row(cells);
  }
  std::cout << "Best window and its speedup; 0 is the target alone.\n" << table.str();
}

int run_speculative(SpeculativeFlags flags) {
  if (flags.alphas.empty()) flags.alphas = {0.5, 0.6, 0.7, 0.8, 0.9, 0.95};
  if (flags.cost_ratios.empty()) flags.cost_ratios = {0.01, 0.02, 0.05, 0.1, 0.2, 0.5};
  ordered_json plans = ordered_json::array();
  for (const double alpha : flags.alphas) {
    for (const double cost_ratio : flags.cost_ratios) plans.push_back(windows_json(flags, alpha, cost_ratio));
  }
  if (flags.json) {
    std::cout << plans.dump(2) << "\n";
  } else if (plans.size() == 1) {
    print_windows(plans.front());
  } else {
    print_best_windows(flags, plans);
  }
  return 0;
}

std::function<int()> add_speculative(CLI::App& app) {
  auto flags = std::make_shared<SpeculativeFlags>();
  app.add_option("--alpha", flags->alphas, "Acceptance rates of a drafted token, comma-separated")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--cost-ratio", flags->cost_ratios, "Drafter step over one-token target step (c), comma-separated")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1000.0));
  app.add_option("--target-curve", flags->curve,
                 "Measured times of a target step of 1, 2, 3, ... tokens, comma-separated, in any unit, continued as a "
                 "line; without it a verification costs as much as one token, as in the paper")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_option("--operations-ratio", flags->operations_ratio, "Drafter's operations a token over the target's")
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  app.add_option("--max-window", flags->max_window, "Longest window looked at")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_flag("--json", flags->json, "Print a JSON list with every window, full precision");
  app.footer(
      "One alpha and one cost ratio give a table of windows, several a table of best windows.\n"
      "tokens per target run = (1 - alpha^(G+1)) / (1 - alpha), equation (1) of Leviathan et al. 2023;\n"
      "speedup = that / (G c + t(G+1)), Theorem 3.8; operations = (G c^ + G + 1) / that, Theorem 3.11.\n"
      "Examples:\n"
      "  draftsmith plan speculative\n"
      "  draftsmith plan speculative --alpha 0.8 --cost-ratio 0.05\n"
      "  draftsmith plan speculative --alpha 0.6,0.7,0.8 --cost-ratio 0.1 --target-curve 8.1,8.9,9.8,10.6");
  return [flags] { return run_speculative(*flags); };
}

// ---- draftsmith plan specgame

struct SpecGameFlags {
  std::vector<double> acceptance;
  std::vector<double> agreement;
  double draft_ms = 0;
  std::vector<double> target_ms;
  int64_t max_tokens = 7;
  bool json = false;
};

int run_specgame(const SpecGameFlags& flags) {
  const StepCosts costs{.target = flags.target_ms, .draft = flags.draft_ms};
  const double alone = costs.target.front();
  TextTable table({{"method", Align::kLeft}, {"K"}, {"P"}, {"E_pt ms"}, {"long-run ms"}, {"speedup"}});
  ordered_json rows = ordered_json::array();
  const auto add = [&](const char* method, int64_t drafted, double acceptance) {
    const infer::SpecGameLatency latency = infer::specgame_latency(acceptance, drafted, costs);
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
      for (int64_t drafted = 1; drafted <= flags.max_tokens; ++drafted) add(method, drafted, rate);
    }
  };
  add_all("SpS", flags.acceptance);
  add_all("AsG", flags.agreement);
  std::cout << (flags.json ? rows.dump(2) + "\n" : table.str());
  return 0;
}

std::function<int()> add_specgame(CLI::App& app) {
  auto flags = std::make_shared<SpecGameFlags>();
  app.add_option("--acceptance", flags->acceptance, "P of speculative sampling (alpha), comma-separated")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--agreement", flags->agreement,
                 "P of assisted generation: how often both models have the same most likely token, comma-separated")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--draft-ms", flags->draft_ms, "Time of one drafter step; a is K of them")
      ->check(CLI::NonNegativeNumber)
      ->required();
  app.add_option("--target-ms", flags->target_ms,
                 "Time of a target step (b): one number, or a step of 1, 2, 3, ... tokens, comma-separated")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->required();
  app.add_option("--max-tokens", flags->max_tokens, "Largest K, drafted tokens")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_flag("--json", flags->json, "Print a JSON list, full precision");
  app.footer(
      "Latency per token by Liu, Zhang, Song 2024: E_pt, equations (9), (12), (13), is the mean of\n"
      "(a+b)/(n+1) over iterations; long-run is (a+b)/E[n+1], total time over total tokens, and only it\n"
      "predicts the speedup shown.\n"
      "Example:\n"
      "  draftsmith plan specgame --acceptance 0.6,0.8 --agreement 0.85 --draft-ms 1.5 --target-ms 21,22,24");
  return [flags] { return run_specgame(*flags); };
}

// ---- draftsmith plan ppd

struct PpdFlags {
  int64_t layers = 0;
  int64_t early_layer = 0;
  std::vector<std::string> matches;
  int64_t tokens = 128;
  bool json = false;
};

// "3:0.54" -> candidates and match rate of `setting`. Errors: UserError.
infer::PpdSetting parse_match(const std::string& text, infer::PpdSetting setting) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos || !CLI::detail::lexical_cast(text.substr(0, colon), setting.candidates) ||
      !CLI::detail::lexical_cast(text.substr(colon + 1), setting.match_rate) || setting.candidates < 1 ||
      !(setting.match_rate >= 0 && setting.match_rate <= 1)) {
    throw UserError({.where = "draftsmith plan ppd --match",
                     .what = "this is no pair of candidates and match rate",
                     .expected = "K:RATE, a number of candidates of at least 1 and a rate in 0..1",
                     .found = "'" + text + "'",
                     .hint = "for example --match 3:0.54"});
  }
  return setting;
}

int run_ppd(const PpdFlags& flags) {
  infer::PpdSetting setting{.layers = flags.layers, .early_layer = flags.early_layer};
  if (setting.early_layer == 0) setting.early_layer = (setting.layers + 1) / 2;
  if (setting.early_layer > setting.layers || 2 * setting.early_layer < setting.layers) {
    throw UserError({.where = "draftsmith plan ppd --early-layer",
                     .what = "the theorem holds for predictions in the upper half of the layers",
                     .expected = fmt::format("{} to {}", (setting.layers + 1) / 2, setting.layers),
                     .found = std::to_string(setting.early_layer),
                     .hint = ""});
  }
  TextTable table(
      {{"k"}, {"match rate"}, {"latency"}, {"speedup"}, {"long-run speedup"}, {"units in use"}, {"compute"}});
  ordered_json rows = ordered_json::array();
  const double alone = static_cast<double>(setting.layers * flags.tokens);
  for (const std::string& match : flags.matches) {
    setting = parse_match(match, setting);
    const infer::PpdCost cost = infer::ppd_cost(setting, flags.tokens);
    const double long_run = static_cast<double>(setting.layers) / infer::ppd_cost_per_token(setting).latency;
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
  if (flags.json) {
    std::cout << rows.dump(2) << "\n";
  } else {
    std::cout << fmt::format(
                     "{} tokens, {} layers, early prediction at layer {}.\n"
                     "Latency and compute in layers; decoding alone takes {:.0f}.\n",
                     flags.tokens, setting.layers, setting.early_layer, alone)
              << table.str();
  }
  return 0;
}

std::function<int()> add_ppd(CLI::App& app) {
  auto flags = std::make_shared<PpdFlags>();
  app.add_option("--layers", flags->layers, "Layers of the model (d)")->check(CLI::Range(1, 100000))->required();
  app.add_option("--early-layer", flags->early_layer, "Layer that predicts early, in the upper half; default: half")
      ->check(CLI::Range(1, 100000));
  app.add_option("--match", flags->matches, "K:RATE, how often the final token is among K early candidates; repeatable")
      ->required();
  app.add_option("--tokens", flags->tokens, "Length of the sequence")
      ->check(CLI::Range(1, 100000000))
      ->capture_default_str();
  app.add_flag("--json", flags->json, "Print a JSON list, full precision");
  app.footer(
      "Theorem 4.1 of Yang et al. 2024, which needs layers of two tokens to run at the same time: one\n"
      "saturated device shows none of the gain.\n"
      "Example (Vicuna-13B on SQuAD):\n"
      "  draftsmith plan ppd --layers 40 --early-layer 20 --match 1:0.53 --match 3:0.68 --match 5:0.74");
  return [flags] { return run_ppd(*flags); };
}

}  // namespace

std::function<int()> add_plan(CLI::App& app) {
  using Action = std::function<int()>;
  auto entries = std::make_shared<std::vector<std::pair<CLI::App*, Action>>>();
  const auto add = [&](const char* name, const char* summary, Action (*declare)(CLI::App&)) {
    CLI::App* child = app.add_subcommand(name, summary);
    entries->emplace_back(child, declare(*child));
  };
  add("speculative", "Best window and speedup of draft-then-verify methods", add_speculative);
  add("specgame", "Latency per token of ArD, SpS and AsG for K drafted tokens", add_specgame);
  add("ppd", "Latency and compute of predictive pipelined decoding", add_ppd);
  app.require_subcommand(1);
  app.footer(
      "Nothing is loaded or measured: the numbers come from the papers' formulas, which take acceptances\n"
      "as independent of each other. `draftsmith eval` measures alpha, the cost ratio and the speedup.\n"
      "Examples:\n"
      "  draftsmith plan speculative --alpha 0.8 --cost-ratio 0.05\n"
      "  draftsmith plan specgame --acceptance 0.6,0.8 --draft-ms 1.5 --target-ms 21,22,24\n"
      "  draftsmith plan ppd --layers 40 --match 3:0.6837\n"
      "`draftsmith plan COMMAND --help` gives the formulas and options of each.");
  return [entries] {
    for (const auto& [command, action] : *entries) {
      if (command->parsed()) return action();
    }
    return 0;
  };
}

}  // namespace draftsmith::cli
