// `draftsmith plan`: predicts speedups by the papers' formulas, before anything is trained or measured.
#include <limits>
#include <memory>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/plan_tables.h"

namespace draftsmith::cli {
namespace {

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

CLI::Validator rate() {
  return number_in(0, 1, "from 0 to 1");
}

CLI::Validator ratio() {
  return number_in(0, 1000, "from 0 to 1000");
}

CLI::Validator time_not_zero() {
  return number_in(std::numeric_limits<double>::min(), kHighest, "above 0");
}

std::function<int()> add_speculative(CLI::App& app) {
  auto flags = std::make_shared<SpeculativeQuestion>();
  app.add_option("--alpha", flags->alphas, "Acceptance rates of a drafted token, comma-separated")
      ->delimiter(',')
      ->check(rate());
  app.add_option("--cost-ratio", flags->cost_ratios,
                 "Time of a drafter step over a target step of one token (c), comma-separated")
      ->delimiter(',')
      ->check(ratio());
  app.add_option(
         "--target-curve", flags->curve,
         "Measured times of a target step of 1, 2, 3, ... tokens, comma-separated, in any unit; longer steps are "
         "extrapolated. Default: a verification takes as long as one token, as in the paper")
      ->delimiter(',')
      ->check(time_not_zero());
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
      "  draftsmith plan speculative --alpha 0.6,0.7,0.8 --cost-ratio 0.1 --target-curve 8.1,8.9,9.8,10.6");
  return [flags] {
    print_speculative(*flags);
    return 0;
  };
}

std::function<int()> add_specgame(CLI::App& app) {
  auto flags = std::make_shared<SpecGameQuestion>();
  app.add_option("--acceptance", flags->acceptance, "Acceptance rates of speculative sampling (alpha), comma-separated")
      ->delimiter(',')
      ->check(rate());
  app.add_option("--agreement", flags->agreement,
                 "Agreement rates of assisted generation: how often both models have the same most likely token, "
                 "comma-separated")
      ->delimiter(',')
      ->check(rate());
  app.add_option("--draft-ms", flags->draft_ms, "Time of one drafter step; a is the time of K steps")
      ->check(number_in(0, kHighest, "of at least 0"))
      ->required();
  app.add_option("--target-ms", flags->target_ms,
                 "Time of a target step (b): one number, or times of steps of 1, 2, 3, ... tokens, comma-separated")
      ->delimiter(',')
      ->check(time_not_zero())
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
  return [flags] {
    print_specgame(*flags);
    return 0;
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
      "Nothing is loaded or measured. The papers' formulas assume that acceptances are independent of each\n"
      "other. `draftsmith eval` measures alpha, the cost ratio and the speedup.\n"
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
