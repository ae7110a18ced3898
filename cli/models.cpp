// Commands about a model directory: `draftsmith inspect`, `verify`, `prune`, `export`, `import`, `logits`.
#include <iostream>
#include <memory>

#include <ATen/core/grad_mode.h>
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/device.h"
#include "base/error.h"
#include "base/logging.h"
#include "base/signals.h"
#include "cli/application.h"
#include "data/hdf5/hdf5.h"
#include "infer/forced/teacher_forcing.h"
#include "infer/load_models.h"
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
    "Keep the neurons and heads with the largest weights in each layer, of T5 the same heads in all:\n"
    "  draftsmith prune --model TARGET --out DRAFTER --ff-width 512 --heads 4\n"
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
               recipes::vllm_command(options.target.value_or("TARGET"), options.out));
  }
  return 0;
}

struct LogitsFlags {
  std::string model;
  std::string source;
  std::string target;
  std::string out;
  std::string dtype = "fp32";
  bool ids = false;
  ExecutionOptions execution;
};

// Positions computed at once: 32 MB of a vocabulary of 32,000.
constexpr int64_t kPositions = 256;

void write_line(model::LanguageModel& model, const infer::ForcedBatch& line, size_t dataset, data::Hdf5Writer& writer) {
  infer::TeacherForcing forcing(model, line);
  for (int64_t done = 0; done < forcing.longest(); done += kPositions) {
    const auto logits = forcing.next(kPositions).squeeze(0).to(at::kCPU, at::kFloat).contiguous();  // [L,V]
    writer.append(dataset, std::span<const float>(logits.const_data_ptr<float>(), static_cast<size_t>(logits.numel())));
  }
}

int run_logits(const LogitsFlags& flags) {
  const c10::Device device = begin_execution(flags.execution);
  const at::NoGradGuard no_grad;
  const auto loaded =
      infer::load_model_directory(flags.model, {.device = device, .dtype = parse_weight_type(flags.dtype)});
  const auto sources = infer::read_token_lines(flags.source, loaded, infer::LineKind::kSource, flags.ids);
  const auto targets = infer::read_token_lines(flags.target, loaded, infer::LineKind::kTarget, flags.ids);
  if (sources.size() != targets.size()) {
    throw UserError(other_line_count(flags.target, "sources and targets differ in their number of lines",
                                     targets.size(), sources.size(), flags.source,
                                     "each target belongs to the source on the same line"));
  }
  data::Hdf5Writer writer(flags.out);
  const SignalWatch signals;
  Progress progress({.style = progress_style(), .title = "logits", .unit = "lines", .total = std::ssize(sources)});
  const LongWork work("Nothing was written.", [&] { progress.tick(); });
  for (size_t line = 0; line < sources.size(); ++line) {
    work_point();
    const size_t dataset = writer.create(fmt::format("/logits/{}", line), data::Hdf5Type::kFloat32,
                                         std::ssize(targets[line]), loaded.model->info().vocabulary);
    write_line(*loaded.model, {std::span(&sources[line], 1), std::span(&targets[line], 1)}, dataset, writer);
    progress.advance();
  }
  writer.finish();
  return 0;
}

}  // namespace

Action add_inspect(CLI::App& app) {
  auto path = std::make_shared<std::filesystem::path>();
  app.add_option("path", *path, "Model, exits, corpus, stage or work directory, or results.json")->required();
  app.footer("Examples:\n  draftsmith inspect work/quickstart\n  draftsmith inspect work/quickstart/target/model");
  return [path] {
    std::cout << recipes::inspect(*path);
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
      "Examples:\n  draftsmith export --model work/quickstart/aligned/model --out drafter\n"
      "  draftsmith export --model DRAFTER --format vllm --dtype bf16 --out DIR --target TARGET\n"
      "  draftsmith export --model DRAFTER --format gguf --dtype q8_0 --out drafter.gguf\n"
      "Then, in Python:\n"
      "  drafter = AutoModelForCausalLM.from_pretrained(\"DIR\")\n"
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

Action add_logits(CLI::App& app) {
  auto flags = std::make_shared<LogitsFlags>();
  app.add_option("--model", flags->model, "Model directory")->required();
  app.add_option("--source", flags->source, "File with one source (or prompt of a decoder-only model) a line")
      ->required();
  app.add_option("--target", flags->target, "File with one target a line; an EOS is added to text, not to ids")
      ->required();
  app.add_option("--out", flags->out, "HDF5 file to write: /logits/<line> [T,V] in fp32, lines from 0")->required();
  app.add_flag("--ids", flags->ids, "Read token ids instead of text");
  app.add_option("--dtype", flags->dtype, "Type of the computation: fp32, bf16, fp16, fp64 or int8")
      ->capture_default_str();
  add_execution_flags(app, flags->execution);
  app.footer(
      "Row t of a dataset holds the logits for target position t, given all earlier positions.\n"
      "Example:\n  draftsmith logits --model DIR --source test.de --target test.en --out logits.h5");
  return [flags] { return run_logits(*flags); };
}

}  // namespace draftsmith::cli
