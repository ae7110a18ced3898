// kind = "train": trains a model on a corpus, from random weights or from another model. Makes model/.
#include <utility>
#include <variant>

#include "base/device.h"
#include "data/text/readers.h"
#include "model/files/checkpoint.h"
#include "model/kinds/block_prediction.h"
#include "recipes/stages/continued_training.h"
#include "recipes/stages/exit_training.h"
#include "recipes/stages/stages.h"
#include "recipes/stages/teacher_logits_stage.h"
#include "recipes/stages/tokenizers.h"
#include "recipes/stages/train_stage_options.h"
#include "recipes/stages/training_data.h"
#include "train/teacher/cached_teacher.h"
#include "train/trainable/block_trainables.h"

namespace draftsmith::recipes {

namespace {

// The subject of training: a model by itself, or one of the tables of the stage.
struct PlainTraining {};
struct BlockPredictionTraining {
  int64_t block = 0;
};
using TrainedAs = std::variant<PlainTraining, train::ExitTrainingOptions, TandemTrainingOptions,
                               SharedEncoderTrainingOptions, DeepTandemTrainingOptions, BlockPredictionTraining>;

TrainedAs trained_as(const TrainStageOptions& options) {
  if (options.exits) return *options.exits;
  if (options.tandem) return *options.tandem;
  if (options.shared_encoder) return *options.shared_encoder;
  if (options.deep_tandem) return *options.deep_tandem;
  if (options.block_prediction) return BlockPredictionTraining{*options.block_prediction};
  return PlainTraining{};
}

model::TransformerConfig config_of(const ArchitectureOptions& shape, const data::Tokenizer& tokenizer) {
  return make_config(
      shape,
      {.vocabulary = tokenizer.vocabulary(), .pad = tokenizer.pad(), .eos = tokenizer.eos(), .bos = tokenizer.bos()});
}

// Returns whether the stage's teacher is the model whose encoder its drafter shares.
bool shares_with_teacher(const TrainStageOptions& options) {
  return options.shared_encoder && options.teacher &&
         is_same_model(target_of(*options.shared_encoder, options.from.value_or("")), *options.teacher);
}

// Returns whether a drafter learns from the model whose encoder it shares: then one pass of that model gives both.
bool learns_from_shared(const TrainStageOptions& options) {
  return options.shared_encoder && distils(options) && !options.teacher_logits &&
         (!options.teacher || shares_with_teacher(options));
}

// Makes what each kind of training starts from: models with random weights (`architecture`) or loaded ones (`from`).
// Deep Tandems and block prediction have an architecture (check_blocks).
class StartingModels {
 public:
  StartingModels(const TrainStageOptions& options, const data::Tokenizer& tokenizer, at::Device device)
      : options_(options), tokenizer_(tokenizer), device_(device) {}

  TrainableModels operator()(const PlainTraining&) const {
    return trained_alone<train::PlainTrainable>(options_.architecture ? fresh(architecture()) : loaded());
  }

  TrainableModels operator()(const train::ExitTrainingOptions& exits) const {
    if (options_.architecture) return exit_trainable(exits, fresh(architecture()), {});
    return exit_trainable(exits, loaded(), *options_.from);
  }

  TrainableModels operator()(const TandemTrainingOptions& tandem) const {
    return tandem_trainable(tandem, beginning(), place());
  }

  TrainableModels operator()(const SharedEncoderTrainingOptions& shared) const {
    return shared_encoder_trainable(shared, beginning(), place(), learns_from_shared(options_));
  }

  TrainableModels operator()(const DeepTandemTrainingOptions& deep_tandem) const {
    TrainableModels start;
    start.deep = std::make_unique<model::DeepTandemModel>(
        model::DeepTandemParts{config_of(*deep_tandem.large, tokenizer_), architecture(), deep_tandem.block},
        options_.architecture->seed);
    start.deep->to(device_, at::kFloat);
    start.trainable = std::make_unique<train::DeepTandemTrainable>(*start.deep);
    return start;
  }

  TrainableModels operator()(const BlockPredictionTraining& blocks) const {
    return trained_alone<train::BlockPredictionTrainable>(
        fresh(model::block_prediction_config(architecture(), blocks.block)));
  }

 private:
  Beginning beginning() const {
    Beginning start{.from = options_.from.value_or("")};
    if (options_.architecture) start.fresh = fresh(architecture());
    return start;
  }
  ModelPlace place() const { return {device_, frozen_type(options_.training.precision, device_)}; }

  model::TransformerConfig architecture() const { return config_of(*options_.architecture, tokenizer_); }

  std::unique_ptr<model::TransformerModel> fresh(model::TransformerConfig config) const {
    auto made = std::make_unique<model::TransformerModel>(std::move(config), options_.architecture->seed);
    made->to(device_, at::kFloat);
    return made;
  }

  std::unique_ptr<model::TransformerModel> loaded() const {
    return model::load_model(*options_.from, {.device = device_, .pack = false});
  }

  template <class Trainable>
  static TrainableModels trained_alone(std::unique_ptr<model::TransformerModel> model) {
    TrainableModels start;
    start.trainable = std::make_unique<Trainable>(*model);
    start.models.push_back(std::move(model));
    return start;
  }

  const TrainStageOptions& options_;
  const data::Tokenizer& tokenizer_;
  at::Device device_;
};

TrainableModels starting_models(const TrainStageOptions& options, const data::Tokenizer& tokenizer, at::Device device) {
  TrainableModels start = std::visit(StartingModels(options, tokenizer, device), trained_as(options));
  if (options.from) {
    model::require_vocabulary_fits(start.models.front()->config(), tokenizer.vocabulary(), options.from->string());
  }
  return start;
}

// Loads the teacher that the options name, or returns nullptr for none. A Tandem's frozen primary, or the owner of a
// shared encoder, is not loaded again.
std::unique_ptr<model::TransformerModel> loaded_teacher(const TrainStageOptions& options, at::Device device) {
  if (!options.teacher || shares_with_teacher(options)) return nullptr;
  if (options.tandem && is_frozen_primary(*options.tandem, options.from.value_or(""), *options.teacher)) return nullptr;
  return model::load_model(*options.teacher, {.device = device});
}

// Returns the source of the teacher's distributions; nullptr if none is needed or the trained models teach themselves.
std::unique_ptr<train::TeacherSource> distilled_from(const TrainStageOptions& options, const data::Corpus& corpus,
                                                     model::TransformerModel* teacher) {
  if (!distils(options)) return nullptr;
  if (options.teacher_logits) {
    return std::make_unique<train::CachedTeacher>(open_teacher_cache(*options.teacher_logits, corpus, options.teacher));
  }
  if (teacher == nullptr) return nullptr;
  return std::make_unique<train::LiveTeacher>(*teacher);
}

void run_train(const TrainStageOptions& options, const StageContext& run) {
  const at::Device device = choose_device(run.execution.device);
  const TrainingData files(options.tokenizer, options.corpus, options.validation_corpus);
  const auto primary = options.tandem ? options.tandem->primary : std::nullopt;
  const auto target = options.shared_encoder ? options.shared_encoder->target : std::nullopt;
  for (const auto& model : {options.from, options.teacher, primary, target}) {
    if (model) load_model_tokenizer(*model, files.tokenizer->hash());
  }
  std::vector<std::string> references;
  if (options.validation_references) references = data::read_lines(*options.validation_references);
  const auto teacher = loaded_teacher(options, device);

  const TrainableModels start = starting_models(options, *files.tokenizer, device);
  train::TrainerInputs inputs = files.inputs(*start.trainable, run);
  inputs.references = std::move(references);
  inputs.teacher = teacher.get();
  if (shares_with_teacher(options) && !start.trainable->teaches()) inputs.teacher = start.models.back().get();
  const auto distilled = distilled_from(options, files.corpus, teacher.get());
  inputs.distilled = distilled.get();
  inputs.continue_from = options.continue_from.value_or("");
  describe_inputs(inputs, run, {"validation_corpus", "validation_references", distils(options) ? "" : "teacher"});
  if (options.from) inputs.generation = model::load_generation_config(*options.from);
  train::Trainer trainer(std::move(inputs), options.training, run.directory);
  trainer.run();
}

}  // namespace

StageKind train_stage() {
  return run_by_all(make_stage_kind<TrainStageOptions>("train", 1, "trains a model on a corpus", run_train));
}

}  // namespace draftsmith::recipes
