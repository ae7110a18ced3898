#include "recipes/stages/train_stage.h"

#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/device.h"
#include "base/json.h"
#include "base/options.h"
#include "data/datasets/datasets.h"
#include "data/text/readers.h"
#include "data/tokenizers/tokenizer.h"
#include "model/families/family.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/models/block_models.h"
#include "recipes/architecture.h"
#include "recipes/recipe.h"
#include "recipes/stages/data_stages.h"
#include "recipes/stages/stages.h"
#include "recipes/stages/trained_models.h"
#include "train/options.h"
#include "train/teacher/cached_teacher.h"
#include "train/trainable/exit_trainables.h"
#include "train/trainable/tandem_trainables.h"

namespace draftsmith::recipes {

std::optional<ValidationMeasures> load_validation(const std::filesystem::path& stage) {
  const std::filesystem::path file = stage / "validation.json";
  if (!std::filesystem::exists(file)) return std::nullopt;
  const nlohmann::json summary = load_json(file);
  const nlohmann::json measures = summary.is_object() ? summary.value("model", nlohmann::json()) : summary;
  Problems problems;
  JsonReader reader(measures, file.string(), problems);
  const ValidationMeasures found{.loss = reader.get_double("loss"), .accuracy = reader.get_double("accuracy")};
  problems.throw_if_any();
  return found;
}

namespace {

constexpr size_t kHashDigits = 16;

// Returns the input's name in StageContext::inputs, of a text in the recipe.
std::string input_key(const std::string& text) {
  if (text.starts_with("@")) return text.substr(0, text.find('/'));
  return data::real_path(text);
}

// Replaces the names of inputs by their hashes: two recipes may call an input differently.
nlohmann::ordered_json hashed(const nlohmann::ordered_json& value, const StageContext& run) {
  if (value.is_structured()) {
    nlohmann::ordered_json all = value;
    for (auto& inner : all) inner = hashed(inner, run);
    return all;
  }
  if (!value.is_string()) return value;
  const auto text = value.get<std::string>();
  const auto input = run.inputs.find(input_key(text));
  if (input == run.inputs.end()) return value;
  const std::string hash = input->second.substr(0, kHashDigits);
  const size_t slash = text.starts_with("@") ? text.find('/') : std::string::npos;
  return slash == std::string::npos ? hash : fmt::format("{} of {}", text.substr(slash + 1), hash);
}

}  // namespace

const char* const kContinueFromHelp =
    "Directory of a finished or failed training run, such as a stage's (\"@stage\"): this stage goes on from its last "
    "checkpoint, with its optimizer, order of data and log. training.length counts from that run's first step. Length, "
    "optimizer.lr, schedule, clip_norm, precision, nonfinite, nonfinite_limit, validation and keep may differ. With "
    "\"@stage\", options that are not given here are that stage's.";

void describe_inputs(train::TrainerInputs& inputs, const StageContext& run,
                     const std::set<std::string>& of_validation) {
  for (const auto& [name, value] : run.options.items()) {
    if (name == "training" || name == "continue_from") continue;
    const std::string text = value.is_null() ? "none" : hashed(value, run).dump();
    (of_validation.contains(name) ? inputs.validated : inputs.shared)[name] = text;
  }
}

TrainingData::TrainingData(const std::filesystem::path& tokenizer_file, const std::filesystem::path& corpus_file,
                           const std::optional<std::filesystem::path>& validation_corpus)
    : tokenizer(data::load_tokenizer(tokenizer_file)), corpus(corpus_file) {
  require_tokenizer(corpus, *tokenizer);
  if (!validation_corpus) return;
  validation.emplace(*validation_corpus);
  require_tokenizer(*validation, *tokenizer);
}

train::TrainerInputs TrainingData::inputs(train::TrainableModel& trainable, const StageContext& run) const {
  train::TrainerInputs inputs(trainable, corpus);
  inputs.validation = validation ? &*validation : nullptr;
  inputs.tokenizer = tokenizer.get();
  inputs.identity = run.identity;
  inputs.progress = run.execution.progress();
  inputs.world = run.execution.world;
  return inputs;
}

namespace {

std::string named(const data::TeacherCacheInfo& info, const char* key) {
  const auto found = info.provenance.find(key);
  return found == info.provenance.end() ? "one that the cache does not name" : found->second;
}

std::string short_hash(const std::string& hash) {
  return hash.substr(0, 16);
}

}  // namespace

data::TeacherCache open_teacher_cache(const std::filesystem::path& file, const data::Corpus& corpus,
                                      const std::optional<std::filesystem::path>& teacher) {
  data::TeacherCache cache(file);
  const data::TeacherCacheInfo& info = cache.info();
  Problems problems;
  const auto add = [&](const char* what, std::string expected, std::string found, const char* hint) {
    problems.add({file.string(), what, std::move(expected), std::move(found), hint});
  };
  if (info.tokenizer_hash != corpus.info().tokenizer_hash) {
    add("the teacher cache was made with another tokenizer than the corpus",
        fmt::format("tokenizer {} of {}", short_hash(corpus.info().tokenizer_hash), corpus.file().string()),
        "tokenizer " + short_hash(info.tokenizer_hash),
        "make the cache from this corpus, with a teacher that has the corpus's tokenizer");
  }
  if (const std::string hash = data::corpus_hash(corpus); info.corpus_hash != hash) {
    add("the teacher cache was made from another corpus",
        fmt::format("{} ({}, {} target tokens)", corpus.file().string(), short_hash(hash), corpus.info().target_tokens),
        fmt::format("{} ({}, {} positions)", named(info, "corpus"), short_hash(info.corpus_hash), info.positions),
        "set `corpus` of the teacher-logits stage to the training corpus");
  }
  if (teacher) {
    if (const std::string hash = model::model_hash(*teacher); info.teacher_hash != hash) {
      add("the teacher cache was made by another teacher", fmt::format("{} ({})", teacher->string(), short_hash(hash)),
          fmt::format("{} ({})", named(info, "teacher"), short_hash(info.teacher_hash)),
          "set `teacher` to the model of the teacher-logits stage, or omit it");
    }
  }
  problems.throw_if_any();
  return cache;
}

// ---- Options of train stages, and checks of them that need no file

struct TrainStageOptions {
  std::filesystem::path corpus;
  std::filesystem::path tokenizer;
  std::optional<std::filesystem::path> continue_from;
  std::optional<std::filesystem::path> from;
  std::optional<ArchitectureOptions> architecture;
  std::optional<std::filesystem::path> validation_corpus;
  std::optional<std::filesystem::path> validation_references;
  std::optional<std::filesystem::path> teacher;
  std::optional<std::filesystem::path> teacher_logits;
  std::optional<train::ExitTrainingOptions> exits;
  std::optional<TandemTrainingOptions> tandem;
  std::optional<SharedEncoderTrainingOptions> shared_encoder;
  std::optional<DeepTandemTrainingOptions> deep_tandem;
  std::optional<int64_t> block_prediction;
  train::TrainOptions training;
  static Fields<TrainStageOptions> fields();
};

// Returns whether the stage's objective learns from a teacher's distributions.
bool distils(const TrainStageOptions& options);

namespace {

// Checks the tables that say what is trained. Models that work in blocks start from random weights; block prediction
// has its own labels.
void check_blocks(const TrainStageOptions& options, const std::string& where, Problems& problems) {
  const bool blocks = options.block_prediction || options.deep_tandem;
  const int kinds = options.tandem.has_value() + options.shared_encoder.has_value() + options.deep_tandem.has_value() +
                    options.block_prediction.has_value() + options.exits.has_value();
  if (kinds > 1) {
    problems.add({.where = where,
                  .what = "a model is of one kind",
                  .expected = "one of `exits`, `tandem`, `shared_encoder`, `deep_tandem` and `block_prediction`"});
  }
  if (blocks && options.from) {
    problems.add({.where = where + ".from",
                  .what = "deep Tandems and models of block prediction start from random weights",
                  .expected = "`architecture`",
                  .found = options.from->string()});
  }
  if (options.block_prediction && (options.teacher || distils(options))) {
    problems.add({.where = where + ".block_prediction",
                  .what = "block prediction predicts other tokens than a teacher, so they cannot be compared",
                  .expected = "no teacher, and objective cross_entropy"});
  }
}

void check_distillation(const TrainStageOptions& options, const std::string& where, Problems& problems) {
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

// Checks a drafter of random weights that is to share an encoder.
void check_shared_encoder(const TrainStageOptions& options, const std::string& where, Problems& problems) {
  if (!options.architecture) return;
  if (!options.shared_encoder->target) {
    problems.add({.where = where + ".shared_encoder.target",
                  .what = "a drafter of random weights needs a target whose encoder it shares",
                  .expected = "a model directory",
                  .found = "none given"});
  }
  const model::Family* family = model::families().find(options.architecture->family);
  if (family != nullptr && !family->base.encoder_decoder) {
    problems.add({.where = where + ".architecture.family",
                  .what = "a drafter that shares an encoder is an encoder-decoder without its own",
                  .expected = "t5 or mt5",
                  .found = family->name});
  }
}

void check_start(const TrainStageOptions& options, const std::string& where, Problems& problems) {
  if (options.from.has_value() == options.architecture.has_value()) {
    problems.add({.where = where,
                  .what = "a model starts either from another model or from random weights",
                  .expected = "one of `from` and `architecture`",
                  .found = options.from ? "both" : "neither"});
  }
  check_distillation(options, where, problems);
  check_blocks(options, where, problems);
  if (options.exits && options.architecture) {
    train::check_fits(*options.exits, options.architecture->decoder_layers, where + ".exits", problems);
  }
  if (options.shared_encoder) check_shared_encoder(options, where, problems);
  if (!options.tandem || !options.architecture) return;
  if (!options.tandem->primary) {
    problems.add({.where = where + ".tandem.primary",
                  .what = "a secondary of random weights needs a primary",
                  .expected = "a model directory",
                  .found = "none given"});
  }
  const auto mapped = static_cast<int64_t>(options.tandem->layer_map.size());
  if (mapped > 0 && mapped != options.architecture->decoder_layers) {
    problems.add(
        {.where = where + ".tandem.layer_map",
         .what = "has not one number for each layer of the secondary",
         .expected = fmt::format("{} numbers (architecture.decoder_layers)", options.architecture->decoder_layers),
         .found = std::to_string(mapped)});
  }
}

}  // namespace

bool distils(const TrainStageOptions& options) {
  return train::needs_teacher(options.training.objective);
}

Fields<TrainStageOptions> TrainStageOptions::fields() {
  using T = TrainStageOptions;
  return Fields<T>("train stage (kind = \"train\"): makes model/")
      .add("corpus", &T::corpus, Required{}, "Corpus to train on (corpus.h5).")
      .add("tokenizer", &T::tokenizer, Required{}, "Tokenizer of the corpus; copied into the model directory.")
      .add("from", &T::from, "Model directory to start from.")
      .add("continue_from", &T::continue_from, kContinueFromHelp)
      .add("architecture", &T::architecture, "Shape of a model that starts from random weights.")
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
      .add("exits", &T::exits,
           "Train it with losses at several layers, so that it can be read early: for early-exit drafting and CALM. "
           "Makes an ordinary model directory with draftsmith/exits inside.")
      .add("tandem", &T::tandem,
           "Train it as the secondary of a Tandem: `from` or `architecture` gives its decoder, which reads a primary's "
           "representations of all tokens but the current block's. Makes a Tandem directory.")
      .add("shared_encoder", &T::shared_encoder,
           "Train it as a drafter that shares its target's encoder: `from` or `architecture` gives its decoder, which "
           "cross-attends to a projection of the target's encoder states. Makes a directory for --drafter.")
      .add("deep_tandem", &T::deep_tandem,
           "Train a deep Tandem: a large part that runs in blocks, and `architecture`, which it sketches them for. "
           "Decoder-only; for comparisons of architectures.")
      .add("block_prediction", &T::block_prediction, Range{1}, Unit{"tokens"},
           "Train a decoder-only model that predicts a whole block of so many tokens at once; for comparisons of "
           "architectures.")
      .add("training", &T::training, "How it is trained.")
      .check(check_start);
}

// ---- kind = "train"
// It trains a model on a corpus, from random weights or from another model. Makes model/.

namespace {

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

template <class Trainable>
TrainableModels trained_alone(std::unique_ptr<model::TransformerModel> model) {
  TrainableModels start;
  start.trainable = std::make_unique<Trainable>(*model);
  start.models.push_back(std::move(model));
  return start;
}

TrainableModels deep_tandem_trainable(const DeepTandemTrainingOptions& options, const model::TransformerConfig& large,
                                      const model::TransformerConfig& small, uint64_t seed, at::Device device) {
  TrainableModels start;
  start.deep = std::make_unique<model::DeepTandemModel>(model::DeepTandemParts{large, small, options.block}, seed);
  start.deep->to(device, at::kFloat);
  start.trainable = std::make_unique<train::DeepTandemTrainable>(*start.deep);
  return start;
}

// Makes what training starts from: models with random weights (`architecture`) or loaded ones (`from`). Deep Tandems
// and block prediction have an architecture (check_blocks).
TrainableModels starting_models(const TrainStageOptions& options, const data::Tokenizer& tokenizer, at::Device device) {
  const auto architecture = [&] { return config_of(*options.architecture, tokenizer); };
  const auto fresh = [&](model::TransformerConfig config) {
    auto made = std::make_unique<model::TransformerModel>(std::move(config), options.architecture->seed);
    made->to(device, at::kFloat);
    return made;
  };
  if (options.deep_tandem) {
    return deep_tandem_trainable(*options.deep_tandem, config_of(*options.deep_tandem->large, tokenizer),
                                 architecture(), options.architecture->seed, device);
  }
  if (options.block_prediction) {
    return trained_alone<train::BlockPredictionTrainable>(
        fresh(model::block_prediction_config(architecture(), *options.block_prediction)));
  }
  Beginning beginning{.from = options.from.value_or("")};
  if (options.architecture) beginning.fresh = fresh(architecture());
  const ModelPlace place{device, frozen_type(options.training.precision, device)};
  if (options.tandem) return tandem_trainable(*options.tandem, std::move(beginning), place);
  if (options.shared_encoder) {
    return shared_encoder_trainable(*options.shared_encoder, std::move(beginning), place, learns_from_shared(options));
  }
  auto model = options.architecture ? std::move(beginning.fresh)
                                    : model::load_model(*options.from, {.device = device, .pack = false});
  if (options.exits) return exit_trainable(*options.exits, std::move(model), beginning.from);
  return trained_alone<train::PlainTrainable>(std::move(model));
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
  if (options.from) {
    model::require_vocabulary_fits(start.models.front()->config(), files.tokenizer->vocabulary(),
                                   options.from->string());
  }
  train::TrainerInputs inputs = files.inputs(*start.trainable, run);
  inputs.references = std::move(references);
  inputs.teacher = teacher.get();
  if (shares_with_teacher(options) && !start.trainable->teaches()) inputs.teacher = start.models.back().get();
  const auto distilled = distilled_from(options, files.corpus, teacher.get());
  inputs.distilled = distilled.get();
  inputs.continue_from = options.continue_from.value_or("");
  describe_inputs(inputs, run, {"validation_corpus", "validation_references", distils(options) ? "" : "teacher"});
  if (options.from) inputs.generation = model::read_settings(*options.from).generation;
  train::Trainer trainer(std::move(inputs), options.training, run.directory);
  trainer.run();
}

}  // namespace

StageKind train_stage() {
  return run_by_all(make_stage_kind<TrainStageOptions>("train", 1, "trains a model on a corpus", run_train));
}

}  // namespace draftsmith::recipes
