// kind = "train": trains a model on a corpus, from random weights or from another model. Makes model/.
#include <fmt/format.h>

#include "base/device.h"
#include "data/readers.h"
#include "data/tokenizer.h"
#include "model/checkpoint.h"
#include "recipes/architecture.h"
#include "recipes/stages/stages.h"
#include "recipes/stages/tokenizers.h"
#include "train/trainer.h"

namespace draftsmith::recipes {

namespace {

struct TrainStageOptions {
  std::filesystem::path corpus;
  std::filesystem::path tokenizer;
  std::optional<std::filesystem::path> from;
  std::optional<ArchitectureOptions> architecture;
  std::optional<std::filesystem::path> validation_corpus;
  std::optional<std::filesystem::path> validation_references;
  std::optional<std::filesystem::path> teacher;
  train::TrainOptions training;
  static Fields<TrainStageOptions> fields();
};

void check_start(const TrainStageOptions& options, const std::string& where, Problems& problems) {
  if (options.from.has_value() == options.architecture.has_value()) {
    problems.add({.where = where,
                  .what = "a model starts either from another model or from random weights",
                  .expected = "one of `from` and `architecture`",
                  .found = options.from ? "both" : "neither"});
  }
}

Fields<TrainStageOptions> TrainStageOptions::fields() {
  using T = TrainStageOptions;
  return Fields<T>("train stage (kind = \"train\"): makes model/")
      .add("corpus", &T::corpus, Required{}, "Corpus to train on (corpus.h5).")
      .add("tokenizer", &T::tokenizer, Required{}, "Tokenizer of the corpus; copied into the model directory.")
      .add("from", &T::from, "Model directory to start from.")
      .add("architecture", &T::architecture, "Shape of a model that starts from random weights.")
      .add("validation_corpus", &T::validation_corpus, "Corpus to validate on; absent: no validation.")
      .add("validation_references", &T::validation_references,
           "Reference texts for validation BLEU, one a line; absent: the decoded targets of the corpus.")
      .add("teacher", &T::teacher, "Model directory that validation measures alpha against.")
      .add("training", &T::training, "How it is trained.")
      .check(check_start);
}

std::unique_ptr<model::TransformerModel> starting_model(const TrainStageOptions& options,
                                                        const data::Tokenizer& tokenizer, at::Device device) {
  if (options.from) {
    auto model = model::load_model(*options.from, {.device = device, .pack = false});
    model::require_vocabulary_fits(model->config(), tokenizer.vocabulary(), options.from->string());
    return model;
  }
  const ArchitectureOptions& shape = *options.architecture;
  const auto config = make_config(
      shape,
      {.vocabulary = tokenizer.vocabulary(), .pad = tokenizer.pad(), .eos = tokenizer.eos(), .bos = tokenizer.bos()});
  auto fresh = std::make_unique<model::TransformerModel>(config, shape.seed);
  fresh->to(device, at::kFloat);
  return fresh;
}

void require_tokenizer(const data::Corpus& corpus, const data::Tokenizer& tokenizer) {
  require_same_tokenizer(tokenizer.hash(), corpus.info().tokenizer_hash, corpus.file(),
                         "prepare it with the tokenizer of this stage");
}

void run_train(const TrainStageOptions& options, const StageRun& run) {
  const at::Device device = choose_device(run.execution.device);
  const auto tokenizer = data::load_tokenizer(options.tokenizer);
  const data::Corpus corpus(options.corpus);
  require_tokenizer(corpus, *tokenizer);
  std::optional<data::Corpus> validation;
  if (options.validation_corpus) {
    validation.emplace(*options.validation_corpus);
    require_tokenizer(*validation, *tokenizer);
  }
  for (const auto& model : {options.from, options.teacher}) {
    if (model) load_model_tokenizer(*model, tokenizer->hash());
  }
  std::vector<std::string> references;
  if (options.validation_references) references = data::read_lines(*options.validation_references);
  std::unique_ptr<model::TransformerModel> teacher;
  if (options.teacher) teacher = model::load_model(*options.teacher, {.device = device});

  const auto trained = starting_model(options, *tokenizer, device);
  train::TrainerInputs inputs(*trained, corpus);
  inputs.validation = validation ? &*validation : nullptr;
  inputs.tokenizer = tokenizer.get();
  inputs.references = std::move(references);
  inputs.teacher = teacher.get();
  if (options.from) inputs.generation = model::load_generation_config(*options.from);
  inputs.identity = run.identity;
  inputs.progress = run.execution.progress;
  train::Trainer trainer(std::move(inputs), options.training, run.directory);
  trainer.run();
}

}  // namespace

StageKind train_stage() {
  return make_stage_kind<TrainStageOptions>("train", 1, "trains a model on a corpus", run_train);
}

}  // namespace draftsmith::recipes
