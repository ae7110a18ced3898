#include "cli/commands.h"

namespace draftsmith::cli {

// Each subcommand has one declaration here and one line below.
std::function<int()> add_train(CLI::App& app);
std::function<int()> add_eval(CLI::App& app);
std::function<int()> add_report(CLI::App& app);
std::function<int()> add_compare(CLI::App& app);
std::function<int()> add_validate(CLI::App& app);
std::function<int()> add_generate(CLI::App& app);
std::function<int()> add_logits(CLI::App& app);
std::function<int()> add_score(CLI::App& app);
std::function<int()> add_data(CLI::App& app);
std::function<int()> add_bench(CLI::App& app);
std::function<int()> add_plan(CLI::App& app);
std::function<int()> add_prune(CLI::App& app);
std::function<int()> add_export(CLI::App& app);
std::function<int()> add_inspect(CLI::App& app);
std::function<int()> add_verify(CLI::App& app);
std::function<int()> add_help(CLI::App& app);

const std::vector<Command>& commands() {
  static const std::vector<Command> list = {
      {"train", "Run a recipe: train models, make teacher outputs, evaluate", add_train},
      {"eval", "Run a suite: measure quality and speed of decoding methods", add_eval},
      {"report", "Show the results of an evaluation, or write them as a page", add_report},
      {"compare", "Show what changed between two evaluations, for users and CI", add_compare},
      {"validate", "Report every error of recipes and suites without running them", add_validate},
      {"generate", "Print outputs for each line of a file, by any decoding method", add_generate},
      {"logits", "Write teacher-forced logits as HDF5, to compare implementations", add_logits},
      {"score", "Compute BLEU, chrF, ROUGE or a program's measure of a file", add_score},
      {"data", "Prepare, show, synthesize and tokenize text", add_data},
      {"bench", "Measure a model's steps beside the machine's rates", add_bench},
      {"plan", "Predict speedups by the papers' formulas, without any model", add_plan},
      {"prune", "Cut a smaller model out of a trained one", add_prune},
      {"export", "Write a model for Transformers, vLLM or llama.cpp", add_export},
      {"inspect", "Describe a model, corpus, stage or work directory", add_inspect},
      {"verify", "Check that a directory is still as it was written", add_verify},
      {"help", "Explain a command, or every option of the configuration files", add_help},
  };
  return list;
}

}  // namespace draftsmith::cli
