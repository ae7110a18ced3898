// draftsmith prune: cuts a smaller model out of a trained one.
#include <fmt/format.h>

#include "base/error.h"
#include "base/signals.h"
#include "cli/commands.h"
#include "cli/common_flags.h"
#include "cli/option_flags.h"
#include "recipes/pruning.h"

namespace draftsmith::cli {

namespace {

struct PruneFlags {
  std::string model;
  std::string out;
  RunOptions run;
};

int run_prune(const PruneFlags& flags, const model::PruneOptions& options) {
  const RunContext context = begin_run(flags.run);
  const SignalWatch watch;
  const recipes::PruneReport report = recipes::prune_directory(flags.model, flags.out, options, context.device);
  fmt::print("{}: {}\n", flags.out, report.text());
  return 0;
}

constexpr const char* kFooter =
    "What is not mentioned stays whole. The result is an ordinary model directory: inspect it, then\n"
    "align it with its target before it drafts (a recipe's train stage with from = DIR on teacher\n"
    "outputs). Recipes prune with a stage of kind = \"prune\", whose options are these.\n"
    "Examples:\n"
    "Layers, of encoder and decoder each by itself:\n"
    "  draftsmith prune --model TARGET --out DRAFTER --decoder-layers every:3\n"
    "  draftsmith prune --model TARGET --out DRAFTER --encoder-layers first:2 --decoder-layers 0,5\n"
    "Width: those neurons and heads of each layer that have the largest weights, or that contributed\n"
    "most on 512 examples, which should be like what is to be decoded:\n"
    "  draftsmith prune --model TARGET --out DRAFTER --ff-width 512 --heads 4\n"
    "  draftsmith prune --model TARGET --out DRAFTER --ff-width 512 \\\n"
    "    --by activation --calibration corpus.h5\n"
    "Vocabulary: embeddings and logits for the 16,000 tokens that a corpus uses most, special tokens\n"
    "always among them. The drafter never proposes the others and reads them as the unknown token;\n"
    "decoding stays lossless. With a large vocabulary the head is most of what a step reads:\n"
    "  draftsmith prune --model TARGET --out DRAFTER --vocabulary-from corpus.h5 \\\n"
    "    --vocabulary-size 16000\n"
    "  draftsmith generate --model TARGET --drafter DRAFTER --method speculative --input sources.txt";

}  // namespace

std::function<int()> add_prune(CLI::App& app) {
  auto flags = std::make_shared<PruneFlags>();
  app.add_option("--model", flags->model, "Model directory to cut from")->required();
  app.add_option("--out", flags->out, "New model directory")->required();
  auto options = std::make_shared<OptionFlags<model::PruneOptions>>(app);
  add_run_flags(app, flags->run);
  app.footer(kFooter);
  return [flags, options] {
    Problems problems;
    const model::PruneOptions wanted = options->value(problems);
    problems.throw_if_any();
    return run_prune(*flags, wanted);
  };
}

}  // namespace draftsmith::cli
