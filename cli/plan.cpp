// `draftsmith plan`: says whether a drafter will pay and with which window, by the papers' formulas
// (evaluate/theory/formulas.h): from step times that it measures on this machine, or from given rates and times.
#include <algorithm>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/device.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/table.h"
#include "cli/application.h"
#include "cli/flags.h"
#include "evaluate/theory/formulas.h"
#include "infer/costs/step_costs.h"
#include "infer/drafters/registry.h"
#include "infer/load_models.h"

namespace draftsmith::cli {
namespace {

using infer::StepCosts;
using nlohmann::ordered_json;

constexpr double kLeast = std::numeric_limits<double>::min();  // above 0
constexpr double kHighest = std::numeric_limits<double>::max();

// Returns a validator of numbers in min..max. CLI::Range would accept NaN.
CLI::Validator number_in(double min, double max, const std::string& description) {
  return {[=](std::string& text) {
            double value = 0;
            if (CLI::detail::lexical_cast(text, value) && value >= min && value <= max) return std::string();
            return fmt::format("'{}' is not a number {}", text, description);
          },
          description};
}

// ---- Windows of draft-then-verify methods: Leviathan et al. 2023

// Windows up to `most`, for one acceptance rate and one pair of models.
ordered_json windows_json(double alpha, const StepCosts& costs, double operations_ratio, int64_t most) {
  const evaluate::BestWindow best = evaluate::best_window(alpha, costs, most);
  ordered_json json{{"alpha", alpha},
                    {"cost_ratio", costs.cost_ratio()},
                    {"best_window", best.window},
                    {"best_speedup", best.speedup},
                    {"windows", ordered_json::array()}};
  for (int64_t window = 0; window <= most; ++window) {
    json["windows"].push_back({{"window", window},
                               {"tokens_per_target_run", evaluate::expected_tokens(alpha, window)},
                               {"speedup", evaluate::walltime_improvement(alpha, window, costs)},
                               {"operations", evaluate::operations_factor(alpha, window, operations_ratio)}});
  }
  return json;
}

std::string best_text(const ordered_json& plan) {
  return fmt::format("{}: {:.2f}x", plan["best_window"].get<int64_t>(), plan["best_speedup"].get<double>());
}

std::string best_sentence(const ordered_json& plan) {
  const std::string where =
      fmt::format("(alpha {:g}, cost ratio {:.4g}).\n", plan["alpha"].get<double>(), plan["cost_ratio"].get<double>());
  if (plan["best_window"] == 0) return "No window is faster than the target alone " + where;
  return fmt::format("Best window {}: {:.2f} times as fast as the target alone {}", plan["best_window"].get<int64_t>(),
                     plan["best_speedup"].get<double>(), where);
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

// Without alphas and cost ratios, usual values of both.
struct SpeculativeFlags {
  std::vector<double> alphas = {0.5, 0.6, 0.7, 0.8, 0.9, 0.95};
  std::vector<double> cost_ratios = {0.01, 0.02, 0.05, 0.1, 0.2, 0.5};
  std::vector<double> curve = {1};  // times of a target step of 1, 2, 3, ... tokens, in any unit
  double operations_ratio = 0;
  int64_t max_window = 64;
  bool json = false;
};

// One alpha and one cost ratio give a table of windows. Several give the best window for each alpha (rows) and cost
// ratio (columns): the paper's Figure 3.
int plan_speculative(const SpeculativeFlags& flags) {
  ordered_json plans = ordered_json::array();
  std::vector<Column> columns{{"alpha"}};
  for (const double cost_ratio : flags.cost_ratios) columns.push_back({fmt::format("c = {:g}", cost_ratio)});
  Table table(columns);
  for (const double alpha : flags.alphas) {
    std::vector<std::string> cells{fmt::format("{:g}", alpha)};
    for (const double cost_ratio : flags.cost_ratios) {
      const StepCosts costs{.target = flags.curve, .draft = cost_ratio * flags.curve.front()};
      plans.push_back(windows_json(alpha, costs, flags.operations_ratio, flags.max_window));
      cells.push_back(best_text(plans.back()));
    }
    table.add_row(cells);
  }
  if (flags.json) {
    std::cout << plans.dump(2) << "\n";
  } else if (plans.size() == 1) {
    print_windows(plans.front());
  } else {
    std::cout << "Best window and its speedup; 0 is the target alone.\n" << table.text();
  }
  return 0;
}

Action add_speculative(CLI::App& app) {
  auto flags = std::make_shared<SpeculativeFlags>();
  app.add_option("--alpha", flags->alphas, "Acceptance rates of a drafted token, comma-separated")
      ->delimiter(',')
      ->check(number_in(0, 1, "from 0 to 1"));
  app.add_option("--cost-ratio", flags->cost_ratios,
                 "Time of a drafter step over a target step of one token (c), comma-separated")
      ->delimiter(',')
      ->check(number_in(0, 1000, "from 0 to 1000"));
  app.add_option("--target-curve", flags->curve,
                 "Measured times of a target step of 1, 2, 3, ... tokens, comma-separated, in any unit; longer steps "
                 "are extrapolated. Default: a verification takes as long as one token, as in the paper")
      ->delimiter(',')
      ->check(number_in(kLeast, kHighest, "above 0"));
  app.add_option("--operations-ratio", flags->operations_ratio,
                 "Operations of the drafter for a token over those of the target")
      ->check(number_in(0, 1000, "from 0 to 1000"))
      ->capture_default_str();
  app.add_option("--max-window", flags->max_window, "Longest window to consider")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_flag("--json", flags->json, "Print a JSON list with every window, full precision");
  app.footer(
      "One alpha and one cost ratio give a table of windows; several give a table of best windows.\n"
      "tokens per target run = (1 - alpha^(G+1)) / (1 - alpha), equation (1) of Leviathan et al. 2023;\n"
      "speedup = tokens / (G c + t(G+1)), Theorem 3.8; operations = (G c^ + G + 1) / tokens, Theorem 3.11.\n"
      "Examples:\n"
      "  draftsmith plan speculative\n"
      "  draftsmith plan speculative --alpha 0.8 --cost-ratio 0.05\n"
      "  draftsmith plan speculative --alpha 0.6,0.7,0.8 --cost-ratio 0.1 --target-curve 8.1,8.9,9.8,10.6");
  return [flags] { return plan_speculative(*flags); };
}

// ---- Measured step times

struct MeasuredFlags {
  std::string model;  // empty: nothing is measured
  std::string drafter;
  std::string dtype = "fp32";
  std::string drafter_dtype;  // empty: dtype
  std::vector<double> alphas = SpeculativeFlags().alphas;
  int64_t max_window = 8;
  int64_t batch = 1;
  int64_t length = 64;
  int64_t source_length = 32;
  bool json = false;
  Execution execution;
};

// Throws a UserError if a model has fewer positions than the longest step needs.
void require_room(const model::ModelInfo& model, const MeasuredFlags& flags) {
  const int64_t longest = flags.length + flags.max_window + 1;
  if (model.max_positions == 0 || longest <= model.max_positions) return;
  throw UserError({.where = model.name,
                   .what = "the model has too few positions for these steps",
                   .expected = fmt::format("--length and --max-window of less than {} together", model.max_positions),
                   .found = fmt::format("{} + {}", flags.length, flags.max_window),
                   .hint = "give a smaller --length"});
}

// Returns the median times of drafting and verifying windows of 0..max_window tokens, in rounds as decoding runs them.
// Errors: UserError for models that cannot be loaded or do not fit.
StepCosts measured_costs(const MeasuredFlags& flags, c10::Device device) {
  model::LoadOptions load{.device = device, .dtype = parse_weight_type(flags.dtype)};
  const infer::LoadedModel target = infer::load_model_directory(flags.model, load);
  if (!flags.drafter_dtype.empty()) load.dtype = parse_weight_type(flags.drafter_dtype, "--drafter-dtype");
  const infer::SharedDrafter drafter = infer::load_drafter(infer::parse_drafter(flags.drafter), flags.model, load);
  const auto exits = infer::find_exits(flags.model, *target.model, {});
  const infer::DraftTarget pair{*target.model, target.tokenizer.get(), exits.get()};
  Problems problems;
  drafter->check(pair, problems);
  if (flags.batch > 1 && (drafter->model() == nullptr || drafter->reads_target())) {
    problems.add({"--batch", "the times of this drafter are measured for one row", "1", std::to_string(flags.batch),
                  "only drafters that are models of their own are measured in batches"});
  }
  problems.throw_if_any();
  require_room(target.model->info(), flags);
  if (drafter->model() != nullptr) require_room(drafter->model()->info(), flags);
  const infer::ContextSize size{.rows = flags.batch, .source = flags.source_length, .length = flags.length};
  return drafter->step_costs(pair, infer::random_context(target.model->info(), size), flags.max_window + 1);
}

// Returns the least acceptance rate with which some window is faster than the target alone; nothing if none is.
std::optional<double> break_even(const StepCosts& costs, int64_t most) {
  const auto pays = [&](double alpha) { return evaluate::best_window(alpha, costs, most).window > 0; };
  if (!pays(1)) return std::nullopt;
  double below = 0;
  double above = 1;
  for (int i = 0; i < 30; ++i) {
    const double middle = (below + above) / 2;
    (pays(middle) ? above : below) = middle;
  }
  return above;
}

int plan_measured(const MeasuredFlags& flags) {
  const c10::Device device = begin_execution(flags.execution);
  const int64_t threads = set_threads(0);  // the number in use
  const StepCosts costs = measured_costs(flags, device);
  const std::optional<double> even = break_even(costs, flags.max_window);
  ordered_json plans = ordered_json::array();
  Table times({{"window"}, {"drafting ms"}, {"verifying ms"}, {"x one"}});
  for (size_t window = 0; window < costs.target.size(); ++window) {
    times.add_row({std::to_string(window), fmt::format("{:.3f}", 1e3 * costs.drafting(static_cast<double>(window))),
                   fmt::format("{:.3f}", 1e3 * costs.target[window]),
                   fmt::format("{:.2f}", costs.target[window] / costs.target.front())});
  }
  Table best({{"alpha"}, {"best window: speedup", Align::kLeft}});
  for (const double alpha : flags.alphas) {
    plans.push_back(windows_json(alpha, costs, 0, flags.max_window));
    for (auto& window : plans.back()["windows"]) window.erase("operations");  // they are not measured
    best.add_row({fmt::format("{:g}", alpha), best_text(plans.back())});
  }
  if (flags.json) {
    const ordered_json json{{"environment", environment()},
                            {"model", flags.model},
                            {"drafter", flags.drafter},
                            {"dtype", flags.dtype},
                            {"device", device.str()},
                            {"threads", threads},
                            {"batch", flags.batch},
                            {"length", flags.length},
                            {"source_length", flags.source_length},
                            {"target_seconds", costs.target},
                            {"drafting_seconds", costs.drafts},
                            {"cost_ratio", costs.cost_ratio()},
                            {"break_even_alpha", even ? ordered_json(*even) : ordered_json()},
                            {"plans", plans}};
    std::cout << json.dump(2) << "\n";
    return 0;
  }
  const std::string processor = device.is_cpu() ? cpu_name() : device_description(device);
  std::cout << cut_to_width(fmt::format("{} with {}", flags.model, flags.drafter), 100) << "\n"
            << fmt::format("{}, batch {}, after {} tokens; {}, {} {}\n", flags.dtype, flags.batch, flags.length,
                           processor, threads, threads == 1 ? "thread" : "threads")
            << times.text()
            << (even ? fmt::format("The drafter pays if more than {:.2f} of its tokens are accepted (alpha).\n", *even)
                     : "The drafter cannot pay here, even if every token is accepted.\n")
            << (plans.size() == 1 ? best_sentence(plans.front()) : best.text());
  return 0;
}

void add_measured_flags(CLI::App& app, MeasuredFlags& flags) {
  const auto size = [](int64_t most) { return CLI::Range(int64_t{1}, most); };
  CLI::Option* model = app.add_option("--model", flags.model, "Directory of the target, whose steps are measured here");
  CLI::Option* drafter = app.add_option("--drafter", flags.drafter, infer::drafter_help());
  model->needs(drafter);
  drafter->needs(model);
  app.add_option("--dtype", flags.dtype, "Type of weights: fp32, bf16, fp16, fp64 or int8")->capture_default_str();
  app.add_option("--drafter-dtype", flags.drafter_dtype, "Type of a drafter that is a model (default: --dtype)");
  app.add_option("--alpha", flags.alphas, "Acceptance rates of a drafted token, comma-separated")
      ->delimiter(',')
      ->check(number_in(0, 1, "from 0 to 1"));
  app.add_option("--max-window", flags.max_window, "Longest window to measure")->check(size(64))->capture_default_str();
  app.add_option("--batch", flags.batch, "Rows that are decoded together")->check(size(65536))->capture_default_str();
  app.add_option("--length", flags.length, "Tokens of each row before a step")
      ->check(size(10'000'000))
      ->capture_default_str();
  app.add_option("--source-length", flags.source_length, "Tokens of an encoder's source")
      ->check(size(10'000'000))
      ->capture_default_str();
  app.add_flag("--json", flags.json, "Print a JSON object with every time and window, full precision");
  add_execution_flags(app, flags.execution);
}

// ---- SpecGame: ArD alone, SpS for each acceptance rate, AsG for each agreement rate (Liu, Zhang, Song 2024)

struct SpecGameFlags {
  std::vector<double> acceptance;  // P of SpS
  std::vector<double> agreement;   // P of AsG
  StepCosts milliseconds;          // drafter's step, and target's steps of 1, 2, 3, ... tokens
  int64_t max_tokens = 7;
  bool json = false;
};

int plan_specgame(const SpecGameFlags& flags) {
  const double alone = flags.milliseconds.target.front();
  Table table({{"method", Align::kLeft}, {"K"}, {"P"}, {"E_pt ms"}, {"long-run ms"}, {"speedup"}});
  ordered_json rows = ordered_json::array();
  const auto add = [&](const char* method, int64_t drafted, double acceptance) {
    const evaluate::SpecGameLatency latency = evaluate::specgame_latency(acceptance, drafted, flags.milliseconds);
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
  const auto add_all = [&](const char* method, const std::vector<double>& rates) {
    for (const double rate : rates) {
      table.add_rule();
      for (int64_t drafted = 1; drafted <= flags.max_tokens; ++drafted) add(method, drafted, rate);
    }
  };
  add("ArD", 0, 0);
  add_all("SpS", flags.acceptance);
  add_all("AsG", flags.agreement);
  std::cout << (flags.json ? rows.dump(2) + "\n" : table.text());
  return 0;
}

Action add_specgame(CLI::App& app) {
  auto flags = std::make_shared<SpecGameFlags>();
  app.add_option("--acceptance", flags->acceptance, "Acceptance rates of speculative sampling (alpha), comma-separated")
      ->delimiter(',')
      ->check(number_in(0, 1, "from 0 to 1"));
  app.add_option("--agreement", flags->agreement,
                 "Agreement rates of assisted generation: how often both models have the same most likely token, "
                 "comma-separated")
      ->delimiter(',')
      ->check(number_in(0, 1, "from 0 to 1"));
  app.add_option("--draft-ms", flags->milliseconds.draft, "Time of one drafter step; a is the time of K steps")
      ->check(number_in(0, kHighest, "of at least 0"))
      ->required();
  app.add_option("--target-ms", flags->milliseconds.target,
                 "Time of a target step (b): one number, or times of steps of 1, 2, 3, ... tokens, comma-separated")
      ->delimiter(',')
      ->check(number_in(kLeast, kHighest, "above 0"))
      ->required();
  app.add_option("--max-tokens", flags->max_tokens, "Largest number of drafted tokens (K)")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_flag("--json", flags->json, "Print a JSON list, full precision");
  app.footer(
      "Latency per token by Liu, Zhang, Song 2024. E_pt, equations (9), (12), (13), is the mean of\n"
      "(a+b)/(n+1) over iterations. The long-run latency is (a+b)/E[n+1], total time over total tokens;\n"
      "the table's speedup follows from it.\n"
      "Example:\n"
      "  draftsmith plan specgame --acceptance 0.6,0.8 --agreement 0.85 --draft-ms 1.5 --target-ms 21,22,24");
  return [flags] { return plan_specgame(*flags); };
}

// ---- Predictive pipelined decoding: Yang et al. 2024

struct PpdFlags {
  int64_t layers = 0;
  int64_t early_layer = 0;           // 0: half of the layers
  std::vector<std::string> matches;  // "3:0.54", candidates and match rate
  int64_t tokens = 128;
  bool json = false;
};

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

int plan_ppd(const PpdFlags& flags) {
  const int64_t half = (flags.layers + 1) / 2;
  evaluate::PpdSetting setting{.layers = flags.layers, .early_layer = flags.early_layer > 0 ? flags.early_layer : half};
  if (setting.early_layer > setting.layers || setting.early_layer < half) {
    throw UserError({.where = "draftsmith plan ppd --early-layer",
                     .what = "the theorem holds only for predictions in the upper half of the layers",
                     .expected = fmt::format("{} to {}", half, setting.layers),
                     .found = std::to_string(setting.early_layer),
                     .hint = ""});
  }
  Table table({{"k"}, {"match rate"}, {"latency"}, {"speedup"}, {"long-run speedup"}, {"units in use"}, {"compute"}});
  ordered_json rows = ordered_json::array();
  const double alone = static_cast<double>(setting.layers * flags.tokens);
  for (const std::string& match : flags.matches) {
    setting = parse_match(match, setting);
    const evaluate::PpdCost cost = evaluate::ppd_cost(setting, flags.tokens);
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
  const std::string heading = fmt::format(
      "{} tokens, {} layers, early prediction at layer {}.\n"
      "Latency and compute in layers; decoding alone takes {:.0f}.\n",
      flags.tokens, setting.layers, setting.early_layer, alone);
  std::cout << (flags.json ? rows.dump(2) + "\n" : heading + table.text());
  return 0;
}

Action add_ppd(CLI::App& app) {
  auto flags = std::make_shared<PpdFlags>();
  app.add_option("--layers", flags->layers, "Layers of the model (d)")->check(CLI::Range(1, 100000))->required();
  app.add_option("--early-layer", flags->early_layer,
                 "Layer that predicts early, in the upper half; default: half of the layers")
      ->check(CLI::Range(1, 100000));
  app.add_option("--match", flags->matches,
                 "K:RATE, the rate at which the final token is among K early candidates; may be repeated")
      ->required();
  app.add_option("--tokens", flags->tokens, "Length of the sequence")
      ->check(CLI::Range(1, 100000000))
      ->capture_default_str();
  app.add_flag("--json", flags->json, "Print a JSON list, full precision");
  app.footer(
      "Theorem 4.1 of Yang et al. 2024. It assumes that layers of two tokens run at the same time; a single\n"
      "busy device shows none of the gain.\n"
      "Example (Vicuna-13B on SQuAD):\n"
      "  draftsmith plan ppd --layers 40 --early-layer 20 --match 1:0.53 --match 3:0.68 --match 5:0.74");
  return [flags] { return plan_ppd(*flags); };
}

}  // namespace

Action add_plan(CLI::App& app) {
  auto measured = std::make_shared<MeasuredFlags>();
  add_measured_flags(app, *measured);
  Subcommands commands(app);
  commands.add("speculative", "Predict best window and speedup from given alpha and cost ratio", add_speculative);
  commands.add("specgame", "Predict latency per token of ArD, SpS and AsG", add_specgame);
  commands.add("ppd", "Predict latency and compute of predictive pipelined decoding", add_ppd);
  app.require_subcommand(0, 1);
  app.footer(
      "With --model and --drafter, step times are measured here: random tokens, rounds as decoding runs\n"
      "them, medians. A step is timed until its most likely tokens are on the host. The commands load no\n"
      "model. The formulas assume that acceptances are independent; `draftsmith eval` measures alpha.\n"
      "Examples:\n"
      "  draftsmith plan --model TARGET --drafter DRAFTER\n"
      "  draftsmith plan --model TARGET --drafter lookup --dtype int8 --alpha 0.6\n"
      "  draftsmith plan speculative --alpha 0.8 --cost-ratio 0.05\n"
      "  draftsmith plan specgame --acceptance 0.6,0.8 --draft-ms 1.5 --target-ms 21,22,24\n"
      "  draftsmith plan ppd --layers 40 --match 3:0.6837\n"
      "`draftsmith plan COMMAND --help` gives the formulas and options of each command.");
  return [measured, commands] {
    if (const auto exit_code = commands.run()) return *exit_code;
    if (!measured->model.empty()) return plan_measured(*measured);
    throw UserError({.where = "draftsmith plan",
                     .what = "there is nothing to plan",
                     .expected = "--model and --drafter, or one of speculative, specgame, ppd",
                     .found = "neither",
                     .hint = "draftsmith plan --help shows examples"});
  };
}

}  // namespace draftsmith::cli
