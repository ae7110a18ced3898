// `draftsmith new`: measures a target here and writes a recipe that gives it a drafter (recipes/starter/starter.h).
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/device.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/files.h"
#include "base/logging.h"
#include "base/signals.h"
#include "base/table.h"
#include "cli/application.h"
#include "recipes/import/import_gguf.h"
#include "recipes/starter/starter.h"

namespace draftsmith::cli {

namespace {

namespace fs = std::filesystem;
using recipes::Candidate;

struct NewFlags {
  recipes::StarterOptions starter;
  int64_t layers = 0;  // 0: the best
  ExecutionOptions execution;
};

// Makes a model directory of a GGUF file, beside the recipe; the drafter goes out as GGUF again.
void use_gguf(recipes::StarterOptions& options) {
  const fs::path directory = options.out.parent_path() / (options.out.stem().string() + "-target");
  if (fs::exists(directory)) {
    throw UserError({.where = directory.string(),
                     .what = "exists already, where the model of " + options.target.string() + " would go",
                     .expected = "a free place",
                     .hint = "name it as --target if it is that model, or choose another --out"});
  }
  log_info("reading {} into {}", options.target.string(), directory.string());
  recipes::import_gguf(options.target, directory);
  options.target = directory;
  options.format = "gguf";
}

// Returns a row for each candidate: what it is, what it costs, and what theory expects of it.
std::string candidates_table(const recipes::Target& target, const recipes::Measured& measured,
                             const recipes::StarterPlan& plan) {
  Table table({{"drafter", Align::kLeft},
               {"M"},
               {"step"},
               {"train/s"},
               {"alpha .5"},
               {".6"},
               {".7"},
               {".8"},
               {"assumed"},
               {"", Align::kLeft}});
  for (const Candidate& candidate : measured.candidates) {
    std::vector<std::string> row = {
        fmt::format("{} of {} layers{}", candidate.layers, target.config.decoder_layers,
                    candidate.vocabulary > 0 ? fmt::format(", {} ids", candidate.vocabulary) : ""),
        fmt::format("{:.1f}", static_cast<double>(candidate.numbers) / 1e6),
        fmt::format("{:.2f}", candidate.costs.cost_ratio()), fmt::format("{:.1f}", 1 / candidate.example_seconds)};
    for (const double alpha : {0.5, 0.6, 0.7, 0.8}) row.push_back(fmt::format("{:.2f}", candidate.speedup(alpha)));
    row.push_back(fmt::format("{:.2f} at {:.1f}", candidate.speedup(candidate.alpha), candidate.alpha));
    row.emplace_back(&candidate == plan.chosen ? "<" : "");
    table.add_row(row);
  }
  return table.text();
}

int run_new(NewFlags flags) {
  recipes::StarterOptions& options = flags.starter;
  const c10::Device device = begin_execution(flags.execution);
  if (flags.layers > 0) options.layers = flags.layers;
  if (options.target.extension() == ".gguf" && !fs::exists(options.out)) use_gguf(options);
  const recipes::Target target = recipes::look_at(options, device);
  std::cout << recipes::describe(target) << std::flush;
  log_info("measuring steps and training, about a minute ...");
  const recipes::Measured measured = recipes::measure_candidates(target, options, device);
  std::cout << fmt::format("{}: a step of the target takes {:.2f} ms, of {} rows together {:.2f} ms ({})\n",
                           device.is_cpu() ? cpu_name() : device_description(device), 1e3 * measured.target.step,
                           recipes::kBatch, 1e3 * measured.target.batch_step, options.dtype);
  const recipes::StarterPlan plan = recipes::make_plan(target, measured, options);
  std::cout << candidates_table(target, measured, plan)
            << "M: million parameters; step: over the target's; train/s: prompts; then speedups that theory expects\n"
               "for shares of accepted drafts, and at the share that is assumed of so many layers.\n";
  write_file_atomic(options.out, recipes::recipe_text(target, plan, options));
  std::cout << fmt::format(
      "{}: {} prompts to train on, {} to measure; minutes: prompts {:.1f}, answers {:.1f}, training {:.1f},\n"
      "evaluation {:.1f}. Next: draftsmith train {}\n",
      options.out.string(), plan.prompts, plan.held_out, plan.prompts_seconds / 60, plan.answers_seconds / 60,
      plan.training_seconds / 60, plan.evaluation_seconds / 60, options.out.string());
  return 0;
}

constexpr const char* kFooter =
    "Measures here the target's steps, those of drafters cut out of it, and their training. Takes the one\n"
    "with the greatest expected speedup whose training fits the hours, and writes a recipe with comments.\n"
    "`draftsmith train` runs it: the target answers prompts, the drafter learns the answers, held-out\n"
    "prompts measure it. The last lines are the verdict, with the exported drafter if it pays.\n"
    "Without --text, a decoder-only target writes its prompts itself. What is not known before training\n"
    "is alpha, the share of accepted drafts: .5 is assumed of one layer, .1 more for each doubling.\n"
    "Examples:\n"
    "  draftsmith new --target SmolLM2-135M-Instruct --dtype bf16 --hours 2\n"
    "  draftsmith new --target model.gguf --text questions.txt --out drafter.toml\n"
    "  draftsmith new --target opus-mt-de-en --text train.de --layers 1\n"
    "  draftsmith train recipe.toml";

}  // namespace

Action add_new(CLI::App& app) {
  auto flags = std::make_shared<NewFlags>();
  recipes::StarterOptions& options = flags->starter;
  app.add_option("--target", options.target, "Model directory, or GGUF file, that gets a drafter")
      ->required()
      ->type_name("DIR|GGUF");
  app.add_option("--text", options.text, "Files with one prompt or source a line, as the target reads them")
      ->type_name("FILE");
  app.add_option("--task", options.task,
                 "chat, translation, summarization or text (default: translation of an encoder-decoder, chat with a "
                 "chat template, else text)")
      ->type_name("NAME");
  app.add_option("--hours", options.hours, "Time that the recipe may take here")
      ->check(CLI::Range(1e-4, 1e4))
      ->capture_default_str();
  app.add_option("--out", options.out, "New recipe")->capture_default_str()->type_name("RECIPE.toml");
  app.add_option("--layers", flags->layers, "Decoder layers of the drafter (default: the best expected speedup's)")
      ->check(CLI::Range(1, 10000));
  app.add_flag("--prune-vocabulary", options.prune_vocabulary,
               "Take drafters with 8,192 ids, too; no other engine runs them, so they are not exported");
  app.add_option("--dtype", options.dtype, "Type of weights in decoding: fp32, bf16, fp16, fp64 or int8")
      ->capture_default_str();
  add_execution_flags(app, flags->execution);
  app.footer(kFooter);
  return [flags] { return run_new(*flags); };
}

}  // namespace draftsmith::cli
