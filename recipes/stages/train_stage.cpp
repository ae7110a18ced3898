// kind = "train": trains a model on a corpus, from random weights or from another model. Makes model/.
#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/device.h"
#include "base/options.h"
#include "data/text/readers.h"
#include "data/tokenizers/tokenizer.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "recipes/stages/data_stages.h"
#include "recipes/stages/stages.h"
#include "recipes/stages/starting_models.h"
#include "recipes/stages/training_inputs.h"
#include "train/options.h"
#include "train/teacher/cached_teacher.h"
#include "train/trainer.h"

namespace draftsmith::recipes {

namespace {

struct TrainStageOptions : StartOptions {
  std::filesystem::path corpus;
  std::filesystem::path tokenizer;
  std::optional<std::filesystem::path> continue_from;
  std::optional<std::filesystem::path> validation_corpus;
  std::optional<std::filesystem::path> validation_references;
  std::optional<std::filesystem::path> teacher;
  std::optional<std::filesystem::path> teacher_logits;
  train::TrainOptions training;
  static Fields<TrainStageOptions> fields();
};

// Returns whether the stage's objective learns from a teacher's distributions.
bool distils(const TrainStageOptions& options) {
  return train::needs_teacher(options.training.objective);
}

void check_distillation(const TrainStageOptions& options, const std::string& where, Problems& problems) {
  if (options.block_prediction && (options.teacher || distils(options))) {
    problems.add({.where = where + ".block_prediction",
                  .what = "block prediction predicts other tokens than a teacher, so they cannot be compared",
                  .expected = "no teacher, and objective cross_entropy"});
  }
  if (options.teacher_logits && !distils(options)) {
    problems.add({.where = where + ".teacher_logits",
                  .what = "nothing is distilled, so stored distributions of a teacher are of no use",
                  .expected = "training.objective.name = \"distill\", or no teacher_logits",
                  .found = options.training.objective.name});
  }
  if (!distils(options)) return;
  if (!options.teacher && !options.teacher_logits && !options.tandem && !options.shared_encoder) {
    problems.add({.where = where + ".training.objective",
                  .what = "distillation needs a teacher",
                  .expected = "`teacher` (a model directory), `teacher_logits` (a cache), `tandem` or `shared_encoder`",
                  .found = "none of them"});
  }
  if (options.training.objective.distill.on_policy.share == 0) return;
  const std::string on_policy = where + ".training.objective.distill.on_policy.share";
  if (options.tandem || options.deep_tandem) {
    problems.add({.where = on_policy,
                  .what = "a Tandem does not decode without its large model, so it has no samples of its own",
                  .expected = "0",
                  .hint = "train on the large model's outputs: a corpus of kind = \"teacher-outputs\""});
  }
  if (options.teacher_logits) {
    problems.add({.where = on_policy,
                  .what = "samples of the student need a teacher that runs, and this one is stored",
                  .expected = "0, or `teacher` without teacher_logits",
                  .found = options.teacher_logits->string()});
  }
}

Fields<TrainStageOptions> TrainStageOptions::fields() {
  using T = TrainStageOptions;
  return Fields<T>("train stage (kind = \"train\"): makes model/")
      .add("corpus", &T::corpus, Required{}, "Corpus to train on (corpus.h5).")
      .add("tokenizer", &T::tokenizer, Required{}, "Tokenizer of the corpus; copied into the model directory.")
      .add("continue_from", &T::continue_from, kContinueFromHelp)
      .inherit<StartOptions>()
      .add("validation_corpus", &T::validation_corpus, "Corpus to validate on; absent: no validation.")
      .add("validation_references", &T::validation_references,
           "Reference texts for validation BLEU, one a line; absent: the decoded targets of the corpus.")
      .add("teacher", &T::teacher,
           "Model directory that validation measures overlap with, and that objective distill learns from unless there "
           "is teacher_logits. Without a teacher, a Tandem learns from its primary, and a drafter that shares an "
           "encoder "
           "from its target.")
      .add("teacher_logits", &T::teacher_logits,
           "Stored distributions of a teacher (teacher_logits.h5, kind = \"teacher-logits\") for objective distill, in "
           "place of running it. They must be of this corpus and, where `teacher` is given, that teacher's.")
      .add("training", &T::training, "How it is trained.")
      .check(check_distillation);
}

// Returns whether the stage's teacher is the model whose encoder its drafter shares.
bool shares_with_teacher(const TrainStageOptions& options) {
  return options.teacher && is_shared_target(options, *options.teacher);
}

// Returns whether a drafter learns from the model whose encoder it shares: then one pass of that model gives both.
bool learns_from_shared(const TrainStageOptions& options) {
  return options.shared_encoder && distils(options) && !options.teacher_logits &&
         (!options.teacher || shares_with_teacher(options));
}

// Loads the teacher that the options name, or returns nullptr for none. A Tandem's frozen primary, or the owner of a
// shared encoder, is not loaded again.
std::unique_ptr<model::TransformerModel> loaded_teacher(const TrainStageOptions& options, at::Device device) {
  if (!options.teacher || shares_with_teacher(options) || is_frozen_primary(options, *options.teacher)) return nullptr;
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

  const StartingModels start =
      starting_models(options, *files.tokenizer, {device, frozen_type(options.training.precision, device)},
                      learns_from_shared(options));
  if (options.from) {
    model::require_vocabulary_fits(start.models.front()->config(), files.tokenizer->vocabulary(),
                                   options.from->string());
  }
  train::TrainerInputs inputs =
      files.inputs(*start.trainable, run, options.continue_from,
                   {"validation_corpus", "validation_references", distils(options) ? "" : "teacher"});
  inputs.references = std::move(references);
  inputs.teacher = teacher.get();
  if (shares_with_teacher(options) && !start.trainable->teaches()) inputs.teacher = start.models.back().get();
  const auto distilled = distilled_from(options, files.corpus, teacher.get());
  inputs.distilled = distilled.get();
  if (options.from) inputs.generation = model::load_generation_config(*options.from);
  train::Trainer(std::move(inputs), options.training, run.directory).run();
}

}  // namespace

StageKind train_stage() {
  return make_stage_kind<TrainStageOptions>("train", 1, run_train, Processes::kAll);
}

}  // namespace draftsmith::recipes
