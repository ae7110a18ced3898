#include "recipes/stages/train_stage_options.h"

#include <fmt/format.h>

#include "model/families/family.h"
#include "recipes/stages/continued_training.h"

namespace draftsmith::recipes {

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

}  // namespace draftsmith::recipes
