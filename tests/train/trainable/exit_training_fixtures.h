// What the tests of exits and heads share: models of three decoder layers with exits of every form.
#pragma once

#include <cmath>

#include "base/random_tensors.h"
#include "model/models/exits.h"
#include "tests/support/models.h"
#include "tests/train/trainable/tandem_training_fixtures.h"
#include "tests/train/trainable/trainable_checks.h"
#include "train/trainable/exit_trainables.h"

namespace draftsmith::train {

// Three decoder layers: an encoder-decoder whose head is tied and scaled, one whose head is its own, a decoder-only
// model with RMS norms, and one with layer norms.
inline std::vector<model::TransformerConfig> exit_configs() {
  model::TransformerConfig tied = with_test_vocabulary(model::tiny_t5());
  tied.tied_head = true;
  tied.output_scale = 1 / std::sqrt(static_cast<double>(tied.width));  // as T5 has where its head is tied
  std::vector<model::TransformerConfig> configs = {tied};
  for (const auto& config : {model::tiny_t5(), model::tiny_llama(3), model::tiny_gpt2()}) {
    configs.push_back(with_test_vocabulary(config));
  }
  return configs;
}

// Numbers of their own everywhere: additions that begin as zero would hide what they do.
inline void vary(const model::Exits& exits, uint64_t seed) {
  for (const auto& [name, value] : exits.parameters()) {
    at::Tensor changed = value;
    changed.add_(normal_tensor(value.sizes().vec(), 0.2, seed, "varied/" + name, value.scalar_type()));
  }
}

// A model and exits, of which `losses` says how they are trained.
struct ExitPair {
  ExitPair(const model::TransformerConfig& config, const ExitTrainingOptions& losses, at::ScalarType type = at::kFloat,
           uint64_t seed = 3)
      : model(model::varied_model(config, seed, type)),
        exits(exit_config(losses, config.decoder_layers), *model, seed),
        trainable(*model, exits, loss_weights(losses, config.decoder_layers)) {}

  std::unique_ptr<model::TransformerModel> model;
  model::Exits exits;
  ExitTrainable trainable;
};

// A frozen model and its heads.
struct HeadPair {
  HeadPair(const model::TransformerConfig& config, const HeadOptions& options, at::ScalarType type = at::kFloat,
           uint64_t seed = 3, const std::filesystem::path& base = {})
      : model(model::varied_model(config, 3, type)),
        heads(exit_config(options), *model, seed),
        trainable(*model, heads, {base, "@target/model"}) {}

  std::unique_ptr<model::TransformerModel> model;
  model::Exits heads;
  HeadTrainable trainable;
};

inline std::vector<HeadOptions> head_forms() {
  return {{.layers = {1, 2}},
          {.layers = {1, 2}, .own_norms = true},
          {.layers = {2}, .form = "low_rank", .rank = 3},
          {.layers = {1, 2}, .form = "low_rank", .rank = 2, .own_norms = true}};
}

class ExitTraining : public TandemTraining {
 protected:
  data::Corpus corpus_for(const model::TransformerConfig& config) const {
    return data::Corpus(folder_ / (config.encoder_decoder ? "train.h5" : "copy.h5"));
  }

  TrainResult train(TrainableModel& trainable, const TrainOptions& training, const std::string& run) const {
    const data::Corpus corpus(folder_ / "train.h5"), validation(folder_ / "validation.h5");
    return Trainer({.trainable = trainable, .corpus = corpus, .validation = &validation}, training, folder_ / run)
        .run();
  }

  TrainOptions resumed_options() const {
    TrainOptions training = options();
    training.length = "8 steps";
    training.checkpoint_every = "";
    return training;
  }
};

}  // namespace draftsmith::train
