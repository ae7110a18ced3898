// `draftsmith prune`: cuts a smaller model out of a trained one.
#include <fmt/format.h>

#include "base/error.h"
#include "base/signals.h"
#include "cli/application.h"
#include "cli/flags.h"
#include "recipes/pruning.h"

namespace draftsmith::cli {

namespace {

struct PruneFlags {
  std::string model;
  std::string out;
  Execution execution;
};

int run_prune(const PruneFlags& flags, const model::PruneOptions& options) {
  begin_execution(flags.execution);
  const SignalWatch watch;
  const recipes::PruneReport report = recipes::prune_directory(flags.model, flags.out, options);
  fmt::print("{}: {}\n", flags.out, report.text());
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

}  // namespace

Action add_prune(CLI::App& app) {
  auto flags = std::make_shared<PruneFlags>();
  app.add_option("--model", flags->model, "Model directory to cut the new model from")->required();
  app.add_option("--out", flags->out, "New model directory")->required();
  auto options = std::make_shared<OptionFlags<model::PruneOptions>>(app);
  add_execution_flags(app, flags->execution);
  app.footer(kFooter);
  return [flags, options] {
    Problems problems;
    const model::PruneOptions wanted = options->value(problems);
    problems.throw_if_any();
    return run_prune(*flags, wanted);
  };
}

}  // namespace draftsmith::cli
