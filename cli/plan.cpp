// `draftsmith plan`: says whether a drafter will pay and with which window, by the formulas of Leviathan et al. 2023
// (evaluate/theory/formulas.h) from step times that it measures on this machine. Without a drafter: which would pay.
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "base/device.h"
#include "base/error.h"
#include "base/signals.h"
#include "base/table.h"
#include "cli/application.h"
#include "cli/candidates.h"
#include "evaluate/theory/formulas.h"
#include "infer/costs/step_costs.h"
#include "infer/drafters/drafter.h"
#include "infer/drafters/registry.h"
#include "infer/load_models.h"
#include "infer/loop/rows.h"

namespace draftsmith::cli {
namespace {

using infer::StepCosts;

struct PlanFlags {
  std::string model;
  std::string drafter;
  std::string dtype = "fp32";
  std::string drafter_dtype;  // empty: dtype
  int64_t batch = 1;
  int64_t length = 64;
  int64_t source_length = 32;
  int64_t output_tokens = 0;  // 0: outputs never end
  ExecutionOptions execution;
  std::vector<double> alphas = {0.5, 0.6, 0.7, 0.8, 0.9, 0.95};
  int64_t max_window = 8;
};

// Throws a UserError if the target has fewer positions than the longest step needs.
void require_room(const model::ModelInfo& model, const PlanFlags& flags) {
  const int64_t longest = flags.length + flags.max_window + 1;
  if (model.max_positions == 0 || longest <= model.max_positions) return;
  throw UserError({.where = model.name,
                   .what = "the model has too few positions for these steps",
                   .expected = fmt::format("--length and --max-window of less than {} together", model.max_positions),
                   .found = fmt::format("{} + {}", flags.length, flags.max_window),
                   .hint = "give a smaller --length"});
}

// Returns the longest window that fits the drafter's positions, as in decoding; 0: the target would write alone. Warns
// if it is shorter than --max-window.
int64_t longest_window(const infer::LoadedDrafter& drafter, const model::ModelInfo& target, const PlanFlags& flags) {
  if (drafter.model() == nullptr) return flags.max_window;
  infer::Row row;
  row.tokens.resize(static_cast<size_t>(flags.length) + 1);  // with one that the drafter has not read
  if (target.encoder_decoder) row.source.resize(static_cast<size_t>(flags.source_length));
  const model::ModelInfo& info = drafter.model()->info();
  const int64_t room = infer::positions_left(info, row, info.encoder_decoder && !drafter.reads_target());
  if (room < flags.max_window) drafter.warn_of_positions(target, flags.length + flags.max_window);
  return std::min(room, flags.max_window);
}

// Returns the median times of drafting and verifying windows of 0..max_window tokens, in rounds as decoding runs them;
// of fewer tokens where the drafter's positions end. Errors: UserError for models that cannot be loaded or do not fit.
StepCosts measured_costs(const PlanFlags& flags, c10::Device device) {
  model::LoadOptions load{.device = device, .dtype = parse_dtype(flags.dtype)};
  const infer::LoadedModel target = infer::load_model_directory(flags.model, load);
  if (!flags.drafter_dtype.empty()) load.dtype = parse_dtype(flags.drafter_dtype, "--drafter-dtype");
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
  const infer::ContextSize size{.rows = flags.batch, .source = flags.source_length, .length = flags.length};
  const infer::CalibrationContext context = infer::random_context(target.model->info(), size);
  const int64_t longest = longest_window(*drafter, target.model->info(), flags);
  if (longest == 0) return infer::measure_step_costs(*target.model, *target.model, context, 1);
  return drafter->step_costs(pair, context, longest + 1);
}

// Prints what a drafter of each kind would cost and gain. Errors: UserError as measured_costs(), and for a target
// without a tokenizer.
int list_candidates(const PlanFlags& flags, c10::Device device) {
  const model::LoadOptions load{.device = device, .dtype = parse_dtype(flags.dtype)};
  const infer::LoadedModel target = infer::load_model_directory(flags.model, load);
  infer::tokenizer_of(target, "drafters of all kinds learn text; --drafter measures one that reads ids");
  require_room(target.model->info(), flags);
  const infer::ContextSize size{.source = flags.source_length, .length = flags.length};
  const std::vector<Candidate> candidates =
      measure_candidates({.target = target,
                          .load = load,
                          .context = infer::random_context(target.model->info(), size),
                          .folder = std::filesystem::temp_directory_path(),
                          .longest = flags.max_window,
                          .length = flags.output_tokens});
  std::cout << candidates_text(candidates)
            << "step: over the target's; speedups that theory expects if so many drafts are accepted (alpha)\n";
  return 0;
}

int run_plan(const PlanFlags& flags) {
  const c10::Device device = begin_execution(flags.execution);
  const SignalWatch signals;
  const LongWork work("nothing was measured");
  if (flags.drafter.empty()) return list_candidates(flags, device);
  const int64_t threads = set_threads(0);  // the number in use
  const StepCosts costs = measured_costs(flags, device);
  const int64_t longest = std::ssize(costs.target) - 1;
  const std::optional<double> even = evaluate::break_even_alpha(costs, longest, flags.output_tokens);
  Table times({{"window"}, {"drafting ms"}, {"verifying ms"}, {"x one"}});
  for (size_t window = 0; window < costs.target.size(); ++window) {
    times.add_row({std::to_string(window), fmt::format("{:.3f}", 1e3 * costs.drafting(static_cast<double>(window))),
                   fmt::format("{:.3f}", 1e3 * costs.target[window]),
                   fmt::format("{:.2f}", costs.target[window] / costs.target.front())});
  }
  Table best({{"alpha"}, {"best window: speedup", Align::kLeft}});
  for (const double alpha : flags.alphas) {
    const auto& [window, speedup] = evaluate::best_window(alpha, costs, longest, flags.output_tokens);
    best.add_row({fmt::format("{:g}", alpha), fmt::format("{}: {:.2f}x", window, speedup)});
  }
  const std::string processor = device_description(device);
  std::cout << cut_to_width(fmt::format("{} with {}", flags.model, flags.drafter), 100) << "\n"
            << fmt::format("{}, batch {}, after {} tokens; {}, {} {}\n", flags.dtype, flags.batch, flags.length,
                           processor, threads, threads == 1 ? "thread" : "threads")
            << times.text()
            << (even ? fmt::format("The drafter pays if more than {:.2f} of its tokens are accepted (alpha).\n", *even)
                     : "The drafter cannot pay here, even if every token is accepted.\n")
            << best.text();
  return 0;
}

}  // namespace

Action add_plan(CLI::App& app) {
  auto flags = std::make_shared<PlanFlags>();
  const auto add_size = [&](const char* name, int64_t& size, const char* help) {
    app.add_option(name, size, help)->check(CLI::Range(1, 10'000'000))->capture_default_str();
  };
  app.add_option("--model", flags->model, "Directory of the target, whose steps are measured here")->required();
  app.add_option("--drafter", flags->drafter, infer::drafter_help() + " (default: those that training could make)");
  app.add_option("--dtype", flags->dtype, "Type of weights: fp32, bf16, fp16, fp64 or int8")->capture_default_str();
  app.add_option("--drafter-dtype", flags->drafter_dtype, "Type of a drafter that is a model (default: --dtype)");
  add_size("--batch", flags->batch, "Rows that are decoded together");
  add_size("--length", flags->length, "Tokens of each row before a step");
  add_size("--source-length", flags->source_length, "Tokens of an encoder's source");
  app.add_option("--output-tokens", flags->output_tokens,
                 "Tokens of an output, whose last window reaches beyond its end (default: outputs never end)")
      ->check(CLI::Range(1, 100'000));
  app.add_option("--alpha", flags->alphas, "Acceptance rates of a drafted token, comma-separated")
      ->delimiter(',')
      ->check(within(0, 1), "");
  app.add_option("--max-window", flags->max_window, "Longest window to measure")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  for (const char* name : {"--alpha", "--batch", "--drafter-dtype"}) {
    app.get_option(name)->needs(app.get_option("--drafter"));
  }
  add_execution_flags(app, flags->execution);
  app.footer(
      "Step times are measured on random tokens, in rounds as decoding runs them; the weights do not\n"
      "matter. A step is timed until its most likely tokens are on the host. Medians are printed.\n"
      "tokens per target run = (1 - alpha^(G+1)) / (1 - alpha), equation (1) of Leviathan et al. 2023;\n"
      "speedup = tokens / (G c + t(G+1)), Theorem 3.8. Both assume that acceptances are independent;\n"
      "`draftsmith eval` measures alpha. Without --drafter, drafters of each kind are cut out of the target\n"
      "and measured; `draftsmith new` chooses one and writes its recipe.\n"
      "Examples:\n"
      "  draftsmith plan --model TARGET\n"
      "  draftsmith plan --model TARGET --drafter DRAFTER --output-tokens 20\n"
      "  draftsmith plan --model TARGET --drafter lookup --dtype int8 --alpha 0.6");
  return [flags] { return run_plan(*flags); };
}

}  // namespace draftsmith::cli
