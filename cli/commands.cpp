#include "cli/commands.h"

namespace draftsmith::cli {

// One declaration and one line below for each subcommand.
std::function<int()> add_train(CLI::App& app);
std::function<int()> add_eval(CLI::App& app);
std::function<int()> add_report(CLI::App& app);
std::function<int()> add_validate(CLI::App& app);
std::function<int()> add_generate(CLI::App& app);
std::function<int()> add_logits(CLI::App& app);
std::function<int()> add_score(CLI::App& app);
std::function<int()> add_data(CLI::App& app);
std::function<int()> add_plan(CLI::App& app);
std::function<int()> add_prune(CLI::App& app);
std::function<int()> add_export(CLI::App& app);
std::function<int()> add_inspect(CLI::App& app);
std::function<int()> add_verify(CLI::App& app);
std::function<int()> add_help(CLI::App& app);

const std::vector<Command>& commands() {
  static const std::vector<Command> list = {
      {"train", "Run a recipe: train models, make teacher outputs, evaluate", add_train},
      {"eval", "Run an evaluation suite: quality and speed of methods against baselines", add_eval},
      {"report", "Show the results of an evaluation, or write them as a Markdown or HTML page", add_report},
      {"validate", "Find every error of recipes and suites without running them", add_validate},
      {"generate", "Outputs for each line of a file, by any decoding method", add_generate},
      {"logits", "Teacher-forced logits as HDF5, for comparing with other implementations", add_logits},
      {"score", "BLEU, chrF, ROUGE: a metric of a file of hypotheses", add_score},
      {"data", "Prepare, show, make up and tokenise text", add_data},
      {"plan", "Speed that theory promises: best window, SpecGame's and PPD's latencies", add_plan},
      {"prune", "Cut a smaller model out of a trained one: layers, neurons, heads, vocabulary", add_prune},
      {"export", "Write a model as a directory for Transformers or vLLM, with proof that it arrived whole", add_export},
      {"inspect", "Tell what a model, corpus, stage or work directory holds", add_inspect},
      {"verify", "Check that a directory is still what was written", add_verify},
      {"help", "Explain a command, or every option of the configuration files", add_help},
  };
  return list;
}

}  // namespace draftsmith::cli
