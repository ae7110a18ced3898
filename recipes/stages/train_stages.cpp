// kind = "train" trains a model on a corpus, from random weights or from another model. kind = "heads" trains
// early-prediction heads for layers of a frozen model (train/trainable/exit_trainables.h): model/ is a copy of the
// model's directory with draftsmith/exits inside.
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/device.h"
#include "base/logging.h"
#include "base/options.h"
#include "data/corpus/corpus.h"
#include "data/text/readers.h"
#include "data/tokenizers/tokenizer.h"
#include "model/files/model_directory.h"
#include "recipes/stage.h"
#include "recipes/stages/data_stages.h"
#include "recipes/stages/starting_models.h"
#include "train/options.h"
#include "train/teacher/cached_teacher.h"
#include "train/trainable/exit_trainables.h"
#include "train/trainer.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;

// Input of stages that train: a corpus, a validation corpus, and the tokenizer of both.
struct TrainingData {
  // Opens the files. Errors: UserError for missing or damaged files, and for a corpus of another tokenizer.
  TrainingData(const fs::path& tokenizer_file, const fs::path& corpus_file,
               const std::optional<fs::path>& validation_corpus)
      : tokenizer(data::load_tokenizer(tokenizer_file)), corpus(corpus_file) {
    require_own_tokenizer(corpus);
    if (validation_corpus) require_own_tokenizer(validation.emplace(*validation_corpus));
  }

  // Returns a trainer's inputs, which refer to this object.
  train::TrainerInputs inputs(train::TrainableModel& trainable, const StageContext& run) const {
    return {.trainable = trainable,
            .corpus = corpus,
            .validation = {.corpus = validation ? &*validation : nullptr, .tokenizer = tokenizer.get()},
            .identity = run.identity,
            .progress = progress_style(),
            .world = run.execution.world};
  }

  std::unique_ptr<data::Tokenizer> tokenizer;
  data::Corpus corpus;
  std::optional<data::Corpus> validation;

 private:
  void require_own_tokenizer(const data::Corpus& one) const {
    require_same_tokenizer(tokenizer->hash(), one.info().tokenizer_hash, one.file(),
                           "prepare it with the tokenizer of this stage");
  }
};

struct TrainStageOptions : StartOptions {
  std::filesystem::path corpus;
  std::filesystem::path tokenizer;
  std::optional<std::filesystem::path> validation_corpus;
  std::optional<std::filesystem::path> teacher;
  std::optional<std::filesystem::path> teacher_logits;
  train::TrainOptions training;
  static Fields<TrainStageOptions> fields();
};

// Returns whether the stage's objective learns from a teacher's distributions.
bool distils(const TrainStageOptions& options) {
  return train::needs_teacher(options.training.objective);
}

// Refuses what is for validations where there is nothing to validate on.
void check_validated(const std::optional<std::filesystem::path>& corpus, const train::ValidationOptions& options,
                     const std::string& where, Problems& problems) {
  const bool measured = options.bleu_examples + options.draft_examples > 0 || options.measure != "loss";
  if (corpus || (!measured && options.patience == 0)) return;
  problems.add({where + ".training.validation", "nothing is validated, so nothing is measured or waited for",
                "validation_corpus, or neither patience nor measure, bleu_examples and draft_examples", "", ""});
}

void check_distillation(const TrainStageOptions& options, const std::string& where, Problems& problems) {
  check_validated(options.validation_corpus, options.training.validation, where, problems);
  if (options.block_prediction && (options.teacher || distils(options))) {
    problems.add({where + ".block_prediction",
                  "block prediction predicts other tokens than a teacher, so they cannot be compared",
                  "no teacher, and objective cross_entropy", "", ""});
  }
  if (options.teacher_logits && !distils(options) && !options.features) {
    problems.add({where + ".teacher_logits", "nothing is distilled, so stored distributions of a teacher are of no use",
                  "training.objective.name = \"distill\", or no teacher_logits", options.training.objective.name, ""});
  }
  const bool taught = options.tandem || options.shared_encoder || options.features;
  const bool shared = options.shared_encoder && distils(options) && !options.teacher_logits;
  const bool compared = options.teacher || options.tandem || options.features || shared;
  if (options.training.validation.measure == "overlap" && !compared) {
    problems.add({where + ".training.validation.measure", "overlap needs a teacher", "`teacher`, a model directory",
                  "none given", ""});
  }
  if (!distils(options)) return;
  if (!options.teacher && !options.teacher_logits && !taught) {
    problems.add({where + ".training.objective", "distillation needs a teacher",
                  "`teacher` (a model directory), `teacher_logits` (a cache), `tandem`, `features` or "
                  "`shared_encoder`",
                  "none of them", ""});
  }
  if (options.training.objective.distill.on_policy.share == 0) return;
  const std::string on_policy = where + ".training.objective.distill.on_policy.share";
  if (options.tandem || options.deep_tandem || options.features) {
    problems.add(
        {.where = on_policy,
         .what =
             "a Tandem or features drafter does not decode without its large model, so it has no samples of its own",
         .expected = "0",
         .hint = "train on the large model's outputs: a corpus of kind = \"teacher-outputs\""});
  }
  if (options.teacher_logits) {
    problems.add({on_policy, "samples of the student need a teacher that runs, and this one is stored",
                  "0, or `teacher` without teacher_logits", options.teacher_logits->string(), ""});
  }
}

Fields<TrainStageOptions> TrainStageOptions::fields() {
  using T = TrainStageOptions;
  return Fields<T>("train stage (kind = \"train\"): makes model/")
      .add("corpus", &T::corpus, Required{}, "Corpus to train on (corpus.h5).")
      .add("tokenizer", &T::tokenizer, Required{}, "Tokenizer of the corpus; copied into the model directory.")
      .inherit<StartOptions>()
      .add("validation_corpus", &T::validation_corpus, "Corpus to validate on; absent: no validation.")
      .add("teacher", &T::teacher,
           "Model directory that validation measures overlap with, and that objective distill learns from unless there "
           "is teacher_logits. Without a teacher, a Tandem learns from its primary, and a drafter of features or "
           "with a shared encoder from its target.")
      .add("teacher_logits", &T::teacher_logits,
           "Stored distributions of a teacher (teacher_logits.h5, kind = \"teacher-logits\") for objective distill, in "
           "place of running it. They must be of this corpus and, where `teacher` is given, that teacher's. With "
           "`states` a drafter of features reads them there, and its target runs in validation alone.")
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
std::unique_ptr<model::TransformerModel> loaded_teacher(const TrainStageOptions& options, const ModelPlace& place) {
  if (!options.teacher || shares_with_teacher(options) || is_frozen_primary(options, *options.teacher)) return nullptr;
  return model::load_model(*options.teacher, {.device = place.device, .pack = place.packs});
}

// Returns the source of the teacher's distributions; nullptr if none is needed or the trained models teach themselves.
std::unique_ptr<train::TeacherSource> distilled_from(const TrainStageOptions& options, const StartingModels& start,
                                                     const std::optional<data::TeacherCache>& cache,
                                                     model::TransformerModel* teacher) {
  if (!distils(options)) return nullptr;
  if (cache) {
    // The states of a target's last layer and its head give whole distributions.
    const std::vector<int64_t>& layers = cache->info().states.layers;
    const bool whole =
        options.features && !layers.empty() && layers.back() == start.models.back()->config().decoder_layers;
    return whole ? nullptr : std::make_unique<train::CachedTeacher>(*cache);
  }
  if (teacher == nullptr) return nullptr;
  return std::make_unique<train::LiveTeacher>(*teacher);
}

void run_train(const TrainStageOptions& options, const StageContext& run) {
  const at::Device device = choose_device(run.execution.device);
  const TrainingData files(options.tokenizer, options.corpus, options.validation_corpus);
  const auto primary = options.tandem ? options.tandem->primary : std::nullopt;
  const auto target = options.shared_encoder ? options.shared_encoder->target : std::nullopt;
  const auto read = options.features ? options.features->target : std::nullopt;
  for (const auto& model : {options.from, options.teacher, primary, target, read}) {
    if (model) load_model_tokenizer(*model, files.tokenizer->hash());
  }
  const ModelPlace place = place_of_training(options.training.precision, device);
  const auto teacher = loaded_teacher(options, place);

  std::optional<data::TeacherCache> cache;
  if (options.teacher_logits) cache = open_teacher_cache(*options.teacher_logits, files.corpus, options.teacher);
  const StartingModels start =
      starting_models(options, *files.tokenizer, place, learns_from_shared(options), {cache, &files.corpus});
  if (options.from) {
    model::require_vocabulary_fits(start.models.front()->config(), files.tokenizer->vocabulary(),
                                   options.from->string());
  }
  train::TrainerInputs inputs = files.inputs(*start.trainable, run);
  inputs.validation.teacher = teacher.get();
  if (shares_with_teacher(options) && !start.trainable->teaches()) {
    inputs.validation.teacher = start.models.back().get();
  }
  const auto distilled = distilled_from(options, start, cache, teacher.get());
  inputs.distilled = distilled.get();
  if (options.from) inputs.generation = model::read_settings(*options.from).generation;
  train::run_training(std::move(inputs), options.training, run.directory);
}

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
  std::optional<fs::path> validation_corpus;
  train::TrainOptions training = default_training();
  static Fields<HeadsStageOptions> fields();
};

void check_training(const HeadsStageOptions& options, const std::string& where, Problems& problems) {
  check_validated(options.validation_corpus, options.training.validation, where, problems);
  if (options.training.dropout.value_or(0) > 0) {
    problems.add({where + ".training.dropout", "the model is frozen and runs as it decodes, so nothing of it drops out",
                  "0, or none given", fmt::format("{}", *options.training.dropout), ""});
  }
  if (options.training.objective.distill.on_policy.share > 0) {
    problems.add({where + ".training.objective.distill.on_policy.share",
                  "heads do not decode on their own, so they have no samples to learn from", "0", "",
                  "train on the model's own outputs: a corpus of kind = \"teacher-outputs\""});
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
      .add("validation_corpus", &T::validation_corpus, "Corpus to validate on; absent: no validation.")
      .inherit<train::HeadOptions>()
      .add("training", &T::training,
           "How they are trained. objective = { name = \"distill\" } learns from the model's last layer, which runs in "
           "any case. Steps of accumulate times max_rows rows, of fewer where token_budget is reached. Validation "
           "measures are means over the heads; each head's own are beside them.")
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
    problems.add({"training.objective",
                  "a model of a pruned vocabulary has no probabilities for all ids, so nothing is distilled from it",
                  "objective cross_entropy", options.training.objective.name,
                  "train on the model's own outputs: a corpus of kind = \"teacher-outputs\""});
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
  const auto model = model::load_model(options.model, {.device = device, .pack = false});
  model::require_vocabulary_fits(model->config(), files.tokenizer->vocabulary(), options.model.string());
  model::Exits heads(std::move(config), *model, options.seed);
  train::HeadTrainable trainable(*model, heads, {options.model, input_name(run, "model", options.model)});
  train::run_training(files.inputs(trainable, run), options.training, run.directory);
}

}  // namespace

std::vector<StageKind> train_stages() {
  return {make_stage_kind<TrainStageOptions>("train", 1, run_train, Processes::kAll),
          make_stage_kind<HeadsStageOptions>("heads", 1, run_heads, Processes::kAll)};
}

}  // namespace draftsmith::recipes
