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
#include "base/table.h"
#include "cli/application.h"
#include "evaluate/theory/formulas.h"
#include "recipes/import/import_gguf.h"
#include "recipes/starter/starter.h"

namespace draftsmith::cli {

namespace {

namespace fs = std::filesystem;

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
std::string candidates_table(const recipes::Starter& starter) {
  Table table({{"layers"},
               {"million"},
               {"step"},
               {"trained/s"},
               {"alpha .5"},
               {".6"},
               {".7"},
               {".8"},
               {"assumed"},
               {"", Align::kLeft}});
  for (const recipes::Candidate& one : starter.candidates) {
    std::vector<std::string> row = {fmt::format("{} of {}", one.layers, starter.config.decoder_layers),
                                    fmt::format("{:.1f}", static_cast<double>(one.numbers) / 1e6),
                                    fmt::format("{:.2f}", one.costs.cost_ratio()),
                                    fmt::format("{:.1f}", 1 / one.example_seconds)};
    for (const double alpha : {0.5, 0.6, 0.7, 0.8}) {
      row.push_back(fmt::format("{:.2f}", evaluate::best_window(alpha, one.costs, recipes::kLongestWindow).speedup));
    }
    row.push_back(fmt::format("{:.2f}", one.alpha));
    row.emplace_back(&one == &starter.candidates[starter.chosen] ? "<" : "");
    table.add_row(row);
  }
  return table.text();
}

int run_new(const ExecutionOptions& execution, recipes::StarterOptions options) {
  const c10::Device device = begin_execution(execution);
  if (options.target.extension() == ".gguf" && !fs::exists(options.out)) use_gguf(options);
  recipes::Starter starter = recipes::look_at(options, device);
  const model::TransformerConfig& config = starter.config;
  std::cout << fmt::format("{}: {}, {} layers of width {}, {} ids; {}, {}\n", options.target.string(), config.family,
                           config.decoder_layers, config.width, config.vocabulary, starter.task,
                           starter.lines > 0 ? fmt::format("{} different prompts", starter.lines)
                                             : "prompts that it writes itself")
            << std::flush;
  log_info("measuring steps and training, about a minute ...");
  recipes::measure(starter, options, device);
  recipes::choose(starter, options);
  write_file_atomic(options.out, recipes::recipe_text(starter, options));
  std::cout << fmt::format("Steps of {:.2f} ms, of {} rows together {:.2f} ms, on {} in {}\n", 1e3 * starter.step,
                           recipes::kBatch, 1e3 * starter.batch_step,
                           device.is_cpu() ? cpu_name() : device_description(device), options.dtype)
            << candidates_table(starter)
            << "step: over the target's; trained/s: examples a second; then speedups that theory expects, by\n"
               "the share of accepted drafts (alpha), and the share that is assumed of so many layers.\n"
            << fmt::format(
                   "{}: {} prompts to train on, {} to measure; minutes: prompts {:.1f}, answers {:.1f},\n"
                   "training {:.1f}, evaluation {:.1f}. Next: draftsmith train {}\n",
                   options.out.string(), starter.prompts, starter.held_out, starter.prompts_seconds / 60,
                   starter.answers_seconds / 60, starter.training_seconds / 60, starter.evaluation_seconds / 60,
                   options.out.string());
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
  auto execution = std::make_shared<ExecutionOptions>();
  auto options = std::make_shared<recipes::StarterOptions>();
  app.add_option("--target", options->target, "Model directory, or GGUF file, that gets a drafter")
      ->required()
      ->type_name("DIR|GGUF");
  app.add_option("--text", options->text, "Files with one prompt or source a line, as the target reads them")
      ->type_name("FILE");
  app.add_option("--task", options->task,
                 "chat, translation, summarization or text (default: translation of an encoder-decoder, chat with a "
                 "chat template, else text)")
      ->type_name("NAME");
  app.add_option("--hours", options->hours, "Time that the recipe may take here")
      ->check(CLI::Range(1e-4, 1e4))
      ->capture_default_str();
  app.add_option("--out", options->out, "New recipe")->capture_default_str()->type_name("RECIPE.toml");
  app.add_option("--layers", options->layers, "Decoder layers of the drafter (default: the best expected speedup's)")
      ->check(CLI::Range(1, 10000));
  app.add_option("--dtype", options->dtype, "Type of weights in decoding: fp32, bf16, fp16, fp64 or int8")
      ->capture_default_str();
  add_execution_flags(app, *execution);
  app.footer(kFooter);
  return [execution, options] { return run_new(*execution, *options); };
}

}  // namespace draftsmith::cli
