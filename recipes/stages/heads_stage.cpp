// kind = "heads": trains early-prediction heads for layers of a frozen model (train/trainable/exit_trainables.h). Makes
// model/: a copy of the model's directory with draftsmith/exits inside.
#include <fmt/format.h>

#include "base/device.h"
#include "base/logging.h"
#include "model/files/model_directory.h"
#include "recipes/stages/data_stages.h"
#include "recipes/stages/stages.h"
#include "recipes/stages/train_stage.h"
#include "train/trainable/exit_trainables.h"

namespace draftsmith::recipes {

namespace {

namespace fs = std::filesystem;

// Table 4 of Yang et al. 2024, which does not say how the rate falls after its warm-up.
train::TrainOptions default_training() {
  train::TrainOptions training;
  training.length = "3 epochs";
  training.optimizer.lr = 2e-5;
  training.schedule.name = "linear";
  training.schedule.warmup = "4 %";
  // Batches of 128 texts of up to 2048 tokens.
  training.batches.max_rows = 16;
  training.batches.token_budget = 32768;
  training.accumulate = 8;
  return training;
}

struct HeadsStageOptions : train::HeadOptions {
  fs::path model;
  fs::path corpus;
  fs::path tokenizer;
  std::optional<fs::path> continue_from;
  std::optional<fs::path> validation_corpus;
  train::TrainOptions training = default_training();
  static Fields<HeadsStageOptions> fields();
};

void check_training(const HeadsStageOptions& options, const std::string& where, Problems& problems) {
  if (options.training.dropout.value_or(0) > 0) {
    problems.add({.where = where + ".training.dropout",
                  .what = "the model is frozen and runs as it decodes, so nothing of it drops out",
                  .expected = "0, or none given",
                  .found = fmt::format("{}", *options.training.dropout)});
  }
  if (options.training.objective.distill.on_policy.share > 0) {
    problems.add({.where = where + ".training.objective.distill.on_policy.share",
                  .what = "heads do not decode on their own, so they have no samples to learn from",
                  .expected = "0",
                  .hint = "train on the model's own outputs: a corpus of kind = \"teacher-outputs\""});
  }
}

Fields<HeadsStageOptions> HeadsStageOptions::fields() {
  using T = HeadsStageOptions;
  return Fields<T>("heads stage (kind = \"heads\"): makes model/")
      .add("model", &T::model, Required{}, "Model directory whose layers get heads; none of its weights changes.")
      .add("corpus", &T::corpus, Required{},
           "Corpus to train on (corpus.h5). Heads that are to predict what the model will say learn it best from its "
           "own outputs (kind = \"teacher-outputs\").")
      .add("tokenizer", &T::tokenizer, Required{}, "Tokenizer of the corpus and the model.")
      .add("continue_from", &T::continue_from, kContinueFromHelp)
      .add("validation_corpus", &T::validation_corpus, "Corpus to validate on; absent: no validation.")
      .inherit<train::HeadOptions>()
      .add("training", &T::training,
           "How they are trained. objective = { name = \"distill\" } learns from the model's last layer, which runs in "
           "any case. Steps of accumulate times max_rows examples, of fewer where token_budget is reached. Validation "
           "measures are "
           "means over the heads; each head's own are beside them.")
      .check(check_training);
}

// Refuses layers and ranks that the model does not have, before anything is loaded.
model::ExitConfig checked_config(const HeadsStageOptions& options) {
  const model::TransformerConfig config = model::read_settings(options.model).config;
  model::ExitConfig heads = train::exit_config(options);
  Problems problems;
  train::check_early_layers(options.layers, config.decoder_layers, "layers", problems);
  if (problems.empty()) model::check_exits(heads, config, "heads", problems);
  if (train::needs_teacher(options.training.objective) && config.vocabulary_rows() < config.vocabulary) {
    problems.add(
        {.where = "training.objective",
         .what = "a model of a pruned vocabulary has no probabilities for all ids, so nothing is distilled from it",
         .expected = "objective cross_entropy",
         .found = options.training.objective.name,
         .hint = "train on the model's own outputs: a corpus of kind = \"teacher-outputs\""});
  }
  problems.throw_if_any();
  return heads;
}

void run_heads(const HeadsStageOptions& options, const StageContext& run) {
  model::ExitConfig config = checked_config(options);
  const TrainingData files(options.tokenizer, options.corpus, options.validation_corpus);
  load_model_tokenizer(options.model, files.tokenizer->hash());
  if (model::holds_exits(model::exits_directory(options.model))) {
    log_info("  {} has exits, which the heads replace in the result", options.model.string());
  }
  const at::Device device = choose_device(run.execution.device);
  const std::string hash = model::model_hash(options.model);
  const auto model = model::load_model(options.model, {.device = device, .pack = false});
  model::require_vocabulary_fits(model->config(), files.tokenizer->vocabulary(), options.model.string());
  model::Exits heads(std::move(config), *model, options.seed);
  train::HeadTrainable trainable(*model, heads, {options.model, input_name(run, "model", options.model), hash});
  train::TrainerInputs inputs = files.inputs(trainable, run);
  inputs.continue_from = options.continue_from.value_or("");
  describe_inputs(inputs, run, {"validation_corpus"});
  train::Trainer(std::move(inputs), options.training, run.directory).run();
}

}  // namespace

StageKind heads_stage() {
  return run_by_all(
      make_stage_kind<HeadsStageOptions>("heads", 1, "trains early-prediction heads of a frozen model", run_heads));
}

}  // namespace draftsmith::recipes
