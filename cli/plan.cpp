// `draftsmith plan`: predicts speedups by the papers' formulas, before anything is trained or measured.
#include <limits>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "base/logging.h"
#include "cli/commands.h"
#include "cli/plan_tables.h"
#include "infer/costs/step_curve.h"

namespace draftsmith::cli {
namespace {

constexpr double kHighest = std::numeric_limits<double>::max();
constexpr double kMilli = 1e3;  // milliseconds of a second

// Returns a validator of numbers in min..max. CLI::Range would accept NaN.
CLI::Validator number_in(double min, double max, const std::string& description) {
  return {[=](std::string& text) {
            double value = 0;
            if (CLI::detail::lexical_cast(text, value) && value >= min && value <= max) return std::string();
            return fmt::format("'{}' is not a number {}", text, description);
          },
          description};
}

CLI::Validator rate() {
  return number_in(0, 1, "from 0 to 1");
}

CLI::Validator ratio() {
  return number_in(0, 1000, "from 0 to 1000");
}

CLI::Validator time_not_zero() {
  return number_in(std::numeric_limits<double>::min(), kHighest, "above 0");
}

UserError missing(const char* command, const char* what, const char* flags) {
  return UserError({.where = command,
                    .what = what,
                    .expected = flags,
                    .found = "neither a number nor a file",
                    .hint = "`draftsmith bench --curve FILE` measures a model and writes such a file"});
}

// Files of measured step times, in place of typed numbers; empty: none.
struct CurveFiles {
  std::string target;
  std::string drafter;
};

// Adds --curve and --drafter-curve, which exclude the options of typed times.
void add_curve_files(CLI::App& app, CurveFiles& files, CLI::Option* target_times, CLI::Option* draft_times) {
  const auto add = [&](const char* flag, std::string& file, const std::string& whose, CLI::Option* typed) {
    app.add_option(flag, file,
                   fmt::format("The {} times as a file that `draftsmith bench --curve` wrote, in place of {}", whose,
                               typed->get_name()))
        ->excludes(typed);
  };
  add("--curve", files.target, "target's", target_times);
  add("--drafter-curve", files.drafter, "drafter's", draft_times);
}

struct Curves {
  std::optional<infer::StepCurve> target;
  std::optional<infer::StepCurve> drafter;
  std::vector<std::string> origins;  // a line for each curve
};

// Reads the given files. Warns if the curves were not measured alike. Errors: UserError.
Curves read_curves(const CurveFiles& files) {
  Curves curves;
  const auto read = [&](const std::string& file, const char* whose) -> std::optional<infer::StepCurve> {
    if (file.empty()) return std::nullopt;
    infer::StepCurve curve = infer::read_step_curve(file);
    curves.origins.push_back(fmt::format("{}: {}", whose, curve.description()));
    return curve;
  };
  curves.target = read(files.target, "Target");
  curves.drafter = read(files.drafter, "Drafter");
  if (curves.target && curves.drafter && !curves.target->measured_like(*curves.drafter)) {
    log_warning("{} and {} were measured on different processors, or with different threads or batches", files.target,
                files.drafter);
  }
  return curves;
}

int plan_speculative(SpeculativeQuestion asked, const CurveFiles& files) {
  if (!files.drafter.empty() && files.target.empty()) {
    throw missing("draftsmith plan speculative", "a drafter's times mean nothing without the target's", "--curve");
  }
  const Curves curves = read_curves(files);
  asked.origins = curves.origins;
  if (curves.target) asked.curve = curves.target->seconds();
  if (curves.drafter) asked.cost_ratios = {curves.drafter->points.front().seconds / asked.curve.front()};
  print_speculative(asked);
  return 0;
}

int plan_specgame(SpecGameQuestion asked, const CurveFiles& files) {
  if (asked.target_ms.empty() && files.target.empty()) {
    throw missing("draftsmith plan specgame", "the target's step times are missing", "--target-ms or --curve");
  }
  const Curves curves = read_curves(files);
  asked.origins = curves.origins;
  if (curves.target) {
    asked.target_ms = curves.target->seconds();
    for (double& time : asked.target_ms) time *= kMilli;
  }
  if (curves.drafter) asked.draft_ms = kMilli * curves.drafter->points.front().seconds;
  print_specgame(asked);
  return 0;
}

std::function<int()> add_speculative(CLI::App& app) {
  auto flags = std::make_shared<SpeculativeQuestion>();
  auto files = std::make_shared<CurveFiles>();
  app.add_option("--alpha", flags->alphas, "Acceptance rates of a drafted token, comma-separated")
      ->delimiter(',')
      ->check(rate());
  CLI::Option* ratios = app.add_option("--cost-ratio", flags->cost_ratios,
                                       "Time of a drafter step over a target step of one token (c), comma-separated")
                            ->delimiter(',')
                            ->check(ratio());
  CLI::Option* times =
      app.add_option(
             "--target-curve", flags->curve,
             "Measured times of a target step of 1, 2, 3, ... tokens, comma-separated, in any unit; longer steps are "
             "extrapolated. Default: a verification takes as long as one token, as in the paper")
          ->delimiter(',')
          ->check(time_not_zero());
  add_curve_files(app, *files, times, ratios);
  app.add_option("--operations-ratio", flags->operations_ratio,
                 "Operations of the drafter for a token over those of the target")
      ->check(ratio())
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
      "  draftsmith plan speculative --alpha 0.6,0.7,0.8 --cost-ratio 0.1 --target-curve 8.1,8.9,9.8,10.6\n"
      "  draftsmith plan speculative --alpha 0.8 --curve target.json --drafter-curve drafter.json");
  return [flags, files] { return plan_speculative(*flags, *files); };
}

std::function<int()> add_specgame(CLI::App& app) {
  auto flags = std::make_shared<SpecGameQuestion>();
  auto files = std::make_shared<CurveFiles>();
  app.add_option("--acceptance", flags->acceptance, "Acceptance rates of speculative sampling (alpha), comma-separated")
      ->delimiter(',')
      ->check(rate());
  app.add_option("--agreement", flags->agreement,
                 "Agreement rates of assisted generation: how often both models have the same most likely token, "
                 "comma-separated")
      ->delimiter(',')
      ->check(rate());
  CLI::Option* draft =
      app.add_option("--draft-ms", flags->draft_ms, "Time of one drafter step; a is the time of K steps")
          ->check(number_in(0, kHighest, "of at least 0"));
  CLI::Option* times =
      app.add_option("--target-ms", flags->target_ms,
                     "Time of a target step (b): one number, or times of steps of 1, 2, 3, ... tokens, comma-separated")
          ->delimiter(',')
          ->check(time_not_zero());
  add_curve_files(app, *files, times, draft);
  app.add_option("--max-tokens", flags->max_tokens, "Largest number of drafted tokens (K)")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_flag("--json", flags->json, "Print a JSON list, full precision");
  app.footer(
      "Latency per token by Liu, Zhang, Song 2024. E_pt, equations (9), (12), (13), is the mean of\n"
      "(a+b)/(n+1) over iterations. The long-run latency is (a+b)/E[n+1], total time over total tokens;\n"
      "the table's speedup follows from it.\n"
      "Example:\n"
      "  draftsmith plan specgame --acceptance 0.6,0.8 --agreement 0.85 --draft-ms 1.5 --target-ms 21,22,24\n"
      "  draftsmith plan specgame --acceptance 0.8 --curve target.json --drafter-curve drafter.json");
  return [flags, files, draft] {
    if (draft->count() == 0 && files->drafter.empty()) {
      throw missing("draftsmith plan specgame", "the drafter's step time is missing", "--draft-ms or --drafter-curve");
    }
    return plan_specgame(*flags, *files);
  };
}

std::function<int()> add_ppd(CLI::App& app) {
  auto flags = std::make_shared<PpdQuestion>();
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
  return [flags] {
    print_ppd(*flags);
    return 0;
  };
}

}  // namespace

std::function<int()> add_plan(CLI::App& app) {
  using Action = std::function<int()>;
  auto entries = std::make_shared<std::vector<std::pair<CLI::App*, Action>>>();
  const auto add = [&](const char* name, const char* summary, Action (*declare)(CLI::App&)) {
    CLI::App* child = app.add_subcommand(name, summary);
    entries->emplace_back(child, declare(*child));
  };
  add("speculative", "Predict best window and speedup of draft-then-verify methods", add_speculative);
  add("specgame", "Predict latency per token of ArD, SpS and AsG", add_specgame);
  add("ppd", "Predict latency and compute of predictive pipelined decoding", add_ppd);
  app.require_subcommand(1);
  app.footer(
      "No model is loaded. The papers' formulas assume that acceptances are independent of each other.\n"
      "`draftsmith bench` measures step times, `draftsmith eval` alpha, the cost ratio and the speedup.\n"
      "Examples:\n"
      "  draftsmith plan speculative --alpha 0.8 --cost-ratio 0.05\n"
      "  draftsmith plan specgame --acceptance 0.6,0.8 --draft-ms 1.5 --target-ms 21,22,24\n"
      "  draftsmith plan ppd --layers 40 --match 3:0.6837\n"
      "`draftsmith plan COMMAND --help` gives the formulas and options of each command.");
  return [entries] {
    for (const auto& [command, action] : *entries) {
      if (command->parsed()) return action();
    }
    return 0;
  };
}

}  // namespace draftsmith::cli
