// Commands about a model directory: `draftsmith inspect`, `verify`, `prune`, `export` and `import`.
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/device.h"
#include "base/error.h"
#include "base/signals.h"
#include "cli/application.h"
#include "data/corpus/corpus.h"
#include "data/tokenizers/tokenizer.h"
#include "recipes/export/export_model.h"
#include "recipes/import/import_gguf.h"
#include "recipes/inspection.h"
#include "recipes/pruning.h"

namespace draftsmith::cli {
namespace {

struct PruneFlags {
  std::string model;
  std::string out;
  ExecutionOptions execution;
};

int run_prune(const PruneFlags& flags, const model::PruneOptions& options) {
  begin_execution(flags.execution);
  const SignalWatch watch;
  fmt::print("{}: {}\n", flags.out, recipes::prune_directory(flags.model, flags.out, options));
  return 0;
}

constexpr const char* kFooter =
    "Parts without a flag stay whole. The result is an ordinary model directory. Inspect it, then align\n"
    "it with its target before it drafts: train on teacher outputs, by a train stage with from = DIR.\n"
    "In recipes, a stage of kind = \"prune\" has the same options.\n"
    "Examples:\n"
    "Keep some layers of the encoder and of the decoder:\n"
    "  draftsmith prune --model TARGET --out DRAFTER --decoder-layers every:3\n"
    "  draftsmith prune --model TARGET --out DRAFTER --encoder-layers first:2 --decoder-layers 0,5\n"
    "Keep the neurons with the largest weights in each layer:\n"
    "  draftsmith prune --model TARGET --out DRAFTER --ff-width 512\n"
    "Keep embeddings and logits of the 16,000 tokens that a corpus uses most, and of all special tokens.\n"
    "The drafter never proposes other tokens and reads them as the unknown token; decoding stays\n"
    "lossless. With a large vocabulary, a step reads the head more than anything else:\n"
    "  draftsmith prune --model TARGET --out DRAFTER --vocabulary-from corpus.h5 \\\n"
    "    --vocabulary-size 16000\n"
    "  draftsmith generate --model TARGET --drafter DRAFTER --method speculative --input sources.txt";

int run_export(const recipes::ExportOptions& options) {
  const SignalWatch watch;
  const recipes::ExportSummary done = recipes::export_model(options);
  fmt::print("{}: {} parameters as {}\n", options.out.string(), done.parameters, done.dtype);
  if (options.format == "vllm") {
    fmt::print("To serve a target with it as the drafter:\n  {}\n",
               recipes::vllm_command(options.target.value_or("TARGET"), options.out, done.eagle3));
  }
  return 0;
}

}  // namespace

Action add_inspect(CLI::App& app) {
  struct Flags {
    std::filesystem::path path, tokenizer;
    int64_t examples = 3;
  };
  auto flags = std::make_shared<Flags>();
  app.add_option("path", flags->path, "Model, exits, corpus, stage or work directory, or results.json")->required();
  app.add_option("--tokenizer", flags->tokenizer, "Of a corpus: tokenizer, to print examples as text");
  app.add_option("--examples", flags->examples, "Number of these examples")
      ->check(CLI::NonNegativeNumber)
      ->needs(app.get_option("--tokenizer"))
      ->capture_default_str();
  app.footer(
      "Examples:\n  draftsmith inspect work/quickstart\n  draftsmith inspect work/quickstart/target/model\n"
      "  draftsmith inspect corpus.h5 --tokenizer work/quickstart/tokenizer/spiece.model");
  return [flags] {
    if (flags->tokenizer.empty()) {
      std::cout << recipes::inspect(flags->path);
    } else {
      const auto tokenizer = data::load_tokenizer(flags->tokenizer);
      std::cout << data::describe_corpus(data::Corpus(flags->path), tokenizer.get(), flags->examples);
    }
    return 0;
  };
}

Action add_verify(CLI::App& app) {
  auto path = std::make_shared<std::filesystem::path>();
  app.add_option("path", *path, "Model, exits, corpus, stage or work directory, or results.json")->required();
  app.footer(
      "The exit code is 2 if anything differs.\nExamples:\n  draftsmith verify work/quickstart\n  draftsmith verify "
      "work/quickstart/target");
  return [path] {
    const auto problems = recipes::verify(*path);
    if (!problems.empty()) throw UserError(problems);
    std::cout << path->string()
              << (recipes::is_recorded(*path) ? ": as it was written\n" : ": well formed; no hashes to compare\n");
    return 0;
  };
}

Action add_prune(CLI::App& app) {
  auto flags = std::make_shared<PruneFlags>();
  app.add_option("--model", flags->model, "Model directory to cut the new model from")->required();
  app.add_option("--out", flags->out, "New model directory")->required();
  auto options = std::make_shared<OptionFlags<model::PruneOptions>>(app);
  add_execution_flags(app, flags->execution);
  app.footer(kFooter);
  return [flags, options] { return run_prune(*flags, options->value()); };
}

Action add_export(CLI::App& app) {
  auto paths = std::make_shared<recipes::ExportOptions>();
  app.add_option("--model", paths->model, "Model directory to export")->required();
  app.add_option("--out", paths->out, "New directory, of --format gguf a new file; what has content is not overwritten")
      ->required();
  auto options = std::make_shared<OptionFlags<recipes::ExportOptions>>(app);
  app.footer(
      "The directory gets its name when it is complete. README.md in it is a model card.\n"
      "GGUF needs Python's gguf (pip install gguf).\n"
      "Examples:\n  draftsmith export --model work/quickstart/aligned/model --out drafter\n"
      "  draftsmith export --model DRAFTER --format vllm --dtype bf16 --out DIR --target TARGET\n"
      "  draftsmith export --model DRAFTER --format gguf --dtype q8_0 --out drafter.gguf\n"
      "Then, in Python (of decoder-only models AutoModelForCausalLM):\n"
      "  drafter = AutoModelForSeq2SeqLM.from_pretrained(\"drafter\")\n"
      "  target.generate(**inputs, assistant_model=drafter)\n"
      "or, with an exported target:\n"
      "  llama-server --model target.gguf --model-draft drafter.gguf --draft-max 5");
  return [paths, options] {
    recipes::ExportOptions wanted = options->value();
    wanted.model = paths->model;
    wanted.out = paths->out;
    return run_export(wanted);
  };
}

Action add_import(CLI::App& app) {
  auto file = std::make_shared<std::filesystem::path>();
  auto out = std::make_shared<std::filesystem::path>();
  app.add_option("file", *file, "GGUF file of a model for text")->required();
  app.add_option("--out", *out, "New model directory; what has content is not overwritten")->required();
  app.footer(
      "Needs Python's gguf (pip install gguf). Quantised weights become fp32, four bytes each, so that no\n"
      "number changes; weights of 16 bits stay so.\n"
      "Examples:\n  draftsmith import SmolLM2-135M-Instruct.Q4_1.gguf --out smollm2\n"
      "  draftsmith generate --model smollm2 --dtype int8 --input prompts.txt");
  return [file, out] {
    const SignalWatch watch;
    recipes::import_gguf(*file, *out);
    fmt::print("{}: imported from {}\n", out->string(), file->string());
    return 0;
  };
}

}  // namespace draftsmith::cli
