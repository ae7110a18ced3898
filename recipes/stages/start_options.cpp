// The tables of a train stage that say what it starts from: their fields and their checks.
#include <map>

#include <fmt/format.h>

#include "base/error.h"
#include "model/families/family.h"
#include "model/models/feature_drafter.h"
#include "recipes/stages/starting_models.h"
#include "train/trainable/tandem_trainables.h"

namespace draftsmith::recipes {

Problem missing_model(const std::string& option, const std::string& what) {
  return {option, what, "a model directory", "none given", ""};
}

namespace {

// Checks the tables that say what is trained. Models that work in blocks start from random weights.
void check_blocks(const StartOptions& options, const std::string& where, Problems& problems) {
  const bool blocks = options.block_prediction || options.deep_tandem;
  const int kinds = options.tandem.has_value() + options.shared_encoder.has_value() + options.deep_tandem.has_value() +
                    options.block_prediction.has_value() + options.exits.has_value() + options.features.has_value();
  if (kinds > 1) {
    problems.add({where, "a model is of one kind",
                  "one of `exits`, `tandem`, `features`, `shared_encoder`, `deep_tandem` and `block_prediction`", "",
                  ""});
  }
  if (blocks && options.from) {
    problems.add({where + ".from", "deep Tandems and models of block prediction start from random weights",
                  "`architecture`", options.from->string(), ""});
  }
}

// Checks a drafter of random weights that is to share an encoder.
void check_shared_encoder(const StartOptions& options, const std::string& where, Problems& problems) {
  if (!options.shared_encoder->target) {
    problems.add(missing_model(where + ".shared_encoder.target", "a drafter of random weights needs a target"));
  }
  const model::Family* family = model::families().find(options.architecture->family);
  if (family != nullptr && !family->base.encoder_decoder) {
    problems.add({where + ".architecture.family",
                  "a drafter that shares an encoder is an encoder-decoder without its own",
                  "t5, marian or another family of encoder-decoders", family->name, ""});
  }
}

// Checks a features drafter, whose shape is its target's.
void check_features(const StartOptions& options, const std::string& where, Problems& problems) {
  const FeatureTrainingOptions& features = *options.features;
  if (options.architecture) {
    problems.add({where + ".architecture", "a features drafter has the shape of its target's layers", "none given",
                  options.architecture->family, ""});
  }
  const std::map<std::string, bool> of_new_ones = {{"decoder_layers", features.decoder_layers.has_value()},
                                                   {"layers", !features.layers.empty()},
                                                   {"vocabulary_from", features.vocabulary_from.has_value()},
                                                   {"vocabulary_size", features.vocabulary_size.has_value()},
                                                   {"block", features.block},
                                                   {"markov_rank", features.markov_rank.has_value()},
                                                   {"start", features.start.has_value()},
                                                   {"seed", features.seed.has_value()}};
  for (const auto& [name, given] : of_new_ones) {
    if (!options.from || !given) continue;
    problems.add({where + ".features." + name,
                  "the features drafter in `from` keeps its layers, vocabulary and weights", "none given", "", ""});
  }
  if (!options.from && !features.target) {
    problems.add(missing_model(where + ".features.target", "a features drafter reads a target"));
  }
  if (features.vocabulary_size && !features.vocabulary_from) {
    problems.add(
        {where + ".features.vocabulary_from", "tokens are counted to choose a vocabulary", "a corpus (.h5)", "", ""});
  }
  if (features.markov_rank && !features.block && !options.from) {
    problems.add({where + ".features.block",
                  "a drafter that reads the tokens of its draft needs no bias by the token before",
                  "true, or no `markov_rank`", "", ""});
  }
}

// Adds a problem for each option of the large part that both parts share and that is not as in `architecture`.
void check_large_part(const StartOptions& options, const std::string& where, Problems& problems) {
  const ArchitectureOptions& large = *options.deep_tandem->large;
  const auto check = [&](const char* key, auto member) {
    if (large.*member == ArchitectureOptions().*member || large.*member == (*options.architecture).*member) return;
    problems.add({where + ".deep_tandem.large." + key, "both parts share this option, which `architecture` gives",
                  fmt::format("{}, or nothing", (*options.architecture).*member), fmt::format("{}", large.*member),
                  ""});
  };
  check("seed", &ArchitectureOptions::seed);
  check("dropout", &ArchitectureOptions::dropout);
  check("tied_head", &ArchitectureOptions::tied_head);
}

void check_start(const StartOptions& options, const std::string& where, Problems& problems) {
  if (options.features) {
    check_features(options, where, problems);
    return check_blocks(options, where, problems);
  }
  if (options.from.has_value() == options.architecture.has_value()) {
    problems.add({where, "a model starts either from another model or from random weights",
                  "one of `from` and `architecture`", options.from ? "both" : "neither", ""});
  }
  check_blocks(options, where, problems);
  if (options.exits && options.architecture) {
    train::check_fits(*options.exits, options.architecture->decoder_layers, where + ".exits", problems);
  }
  if (options.shared_encoder && options.architecture) check_shared_encoder(options, where, problems);
  if (options.deep_tandem && options.deep_tandem->large && options.architecture) {
    check_large_part(options, where, problems);
  }
  if (!options.tandem || !options.architecture) return;
  if (!options.tandem->primary) {
    problems.add(missing_model(where + ".tandem.primary", "a secondary of random weights needs a primary"));
  }
  const auto mapped = static_cast<int64_t>(options.tandem->layer_map.size());
  if (mapped > 0 && mapped != options.architecture->decoder_layers) {
    problems.add({where + ".tandem.layer_map", "has not one number for each layer of the secondary",
                  fmt::format("{} numbers (architecture.decoder_layers)", options.architecture->decoder_layers),
                  std::to_string(mapped), ""});
  }
}

}  // namespace

Fields<TandemTrainingOptions> TandemTrainingOptions::fields() {
  using T = TandemTrainingOptions;
  return Fields<T>("Tandem training")
      .add("primary", &T::primary,
           "Model directory of the primary; absent: the primary of the Tandem directory in `from`.")
      .add("layer_map", &T::layer_map, Range{0},
           "Representation of the primary that each layer j of the secondary reads: 0 is the embedding output, "
           "L_L the last layer. Absent: evenly spread, (j+1) L_L / L_S rounded down.")
      .add("block", &T::block, Range{1}, Unit{"tokens"},
           "Block length G of training; decoding may use any. Absent: 2, or the block of the Tandem in `from`.")
      .add("projections", &T::projections, Choices{"random", "identity"},
           "Initial projections: random numbers (the default), or the unit matrix, cut or padded with zeros.")
      .add("seed", &T::seed, "Seed of random projections.")
      .add("configuration", &T::configuration, Choices(train::tandem_configurations().names()),
           "Trained models: the secondary alone; both models by the secondary's loss; or both by the sum of the losses "
           "of both.")
      .add("copy_primary", &T::copy_primary,
           "Copy a frozen primary into the result, instead of naming it by path and hash. A trained primary is always "
           "copied.");
}

Fields<DeepTandemTrainingOptions> DeepTandemTrainingOptions::fields() {
  using T = DeepTandemTrainingOptions;
  return Fields<T>("deep Tandem training")
      .add("large", &T::large,
           "Shape of the large part, a decoder-only model; `architecture` is the shape of the small part.")
      .add("block", &T::block, Range{1}, Unit{"tokens"}, "Block length G: the large part runs G tokens behind.")
      .check([](const T& options, const std::string& where, Problems& problems) {
        if (options.large) return;
        problems.add({where + ".large", "a deep Tandem needs the shape of its large part", "", "", ""});
      });
}

Fields<SharedEncoderTrainingOptions> SharedEncoderTrainingOptions::fields() {
  using T = SharedEncoderTrainingOptions;
  return Fields<T>("training of a drafter that shares an encoder")
      .add(
          "target", &T::target,
          "Model directory of the target, whose frozen encoder is shared; absent: the target of the drafter in `from`.")
      .add(
          "projection", &T::projection, Choices{"random", "identity"},
          "Initial projection of the target's encoder states: random numbers (the default), or the unit matrix, cut or "
          "padded with zeros.")
      .add("seed", &T::seed, "Seed of a random projection.");
}

Fields<FeatureTrainingOptions> FeatureTrainingOptions::fields() {
  using T = FeatureTrainingOptions;
  return Fields<T>("training of a features drafter")
      .add("target", &T::target,
           "Model directory of the target, which is frozen; absent: the target of the drafter in `from`.")
      .add("decoder_layers", &T::decoder_layers, Range{1, 8}, Unit{"layers"},
           "Layers of the drafter. Absent: 1, or those of the drafter in `from`.")
      .add("layers", &T::layers, Range{0},
           "Layers of the target whose states are read: 0 is the embedding output. Absent: a low one, the middle and "
           "the last.")
      .add("vocabulary_from", &T::vocabulary_from,
           "Corpus (.h5) whose targets' most frequent tokens the drafter has a head for; absent: the target's head.")
      .add("vocabulary_size", &T::vocabulary_size, Range{1}, Unit{"ids"},
           "How many ids that head has, special tokens included. Absent: all that occur there.")
      .add(
          "unrolled", &T::unrolled, Range{1, 16}, Unit{"steps"},
          "Steps of a draft that a training pass unrolls: from the second on the drafter reads its own states. Absent: "
          "3, or as the drafter in `from`.")
      .add("block", &T::block,
           "Block mode: the steps behind the first read masks in place of tokens and states, so that one run drafts "
           "`unrolled` tokens.")
      .add("markov_rank", &T::markov_rank, Range{1, static_cast<double>(model::kMostMarkovRank)},
           "Rank of a bias by the token before, which lets the tokens of a run agree. Absent: none.")
      .add("decay", &T::decay, Range{0.01, 1}, "Weight of each step's loss relative to the step before.")
      .add("start", &T::start, Choices{"target", "random"},
           "Initial layers: the target's last ones, as far as they fit (the default), or random numbers.")
      .add("seed", &T::seed, "Seed of random numbers. Absent: 1.");
}

Fields<StartOptions> StartOptions::fields() {
  using T = StartOptions;
  return Fields<T>("start of a training")
      .add("from", &T::from, "Model directory to start from.")
      .add("architecture", &T::architecture, "Shape of a model that starts from random weights.")
      .add("exits", &T::exits,
           "Train it with losses at several layers, so that it can be read early: for early-exit drafting and CALM. "
           "Makes an ordinary model directory with draftsmith/exits inside.")
      .add("tandem", &T::tandem,
           "Train it as the secondary of a Tandem: `from` or `architecture` gives its decoder, which reads a primary's "
           "representations of all tokens but the current block's. Makes a Tandem directory.")
      .add("shared_encoder", &T::shared_encoder,
           "Train it as a drafter that shares its target's encoder: `from` or `architecture` gives its decoder, which "
           "cross-attends to a projection of the target's encoder states. Makes a directory for --drafter.")
      .add("features", &T::features,
           "Train a drafter of one or two layers that reads its target's hidden states, in place of `architecture`. "
           "Makes a directory for --drafter.")
      .add("deep_tandem", &T::deep_tandem,
           "Train a deep Tandem: a large part that runs in blocks, and `architecture`, which it sketches them for. "
           "Decoder-only; for comparisons of architectures.")
      .add("block_prediction", &T::block_prediction, Range{1}, Unit{"tokens"},
           "Train a decoder-only model that predicts a whole block of so many tokens at once; for comparisons of "
           "architectures.")
      .check(check_start);
}

}  // namespace draftsmith::recipes
