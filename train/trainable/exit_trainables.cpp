#include "train/trainable/exit_trainables.h"

#include <algorithm>
#include <stdexcept>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/util.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"

namespace draftsmith::train {
namespace {

constexpr const char* kAverage = "early_exit_average";
constexpr const char* kCalm = "calm_weighted";
constexpr const char* kWeighted = "weighted";

// Checks what does not depend on the model.
void check_losses(const ExitTrainingOptions& options, const std::string& where, Problems& problems) {
  const size_t exits = options.layers.size();
  if (options.loss == kAverage && exits > 1) {
    problems.add({.where = where + ".layers",
                  .what = "early_exit_average is the mean of two losses: one exit's and the last layer's",
                  .expected = "one layer",
                  .found = fmt::format("{}", fmt::join(options.layers, ", ")),
                  .hint = "use loss = \"weighted\" for several exits"});
  }
  if (options.loss == kCalm && exits > 0) {
    problems.add({.where = where + ".layers",
                  .what = "calm_weighted has an exit at every layer",
                  .expected = "none given",
                  .found = fmt::format("{}", fmt::join(options.layers, ", "))});
  }
  if (options.loss == kWeighted && exits == 0) {
    problems.add({.where = where + ".layers", .what = "weighted losses need exits", .expected = "at least one layer"});
  }
  const size_t needed = options.loss == kWeighted ? exits + 1 : 0;
  if (options.weights.size() != needed) {
    problems.add({.where = where + ".weights",
                  .what = needed == 0 ? "only loss = \"weighted\" takes weights, the others have their own"
                                      : "has not one number for each exit and one for the last layer",
                  .expected = needed == 0 ? "none given" : fmt::format("{} numbers", needed),
                  .found = fmt::format("{} numbers", options.weights.size())});
  }
  check_early_layers(options.layers, 0, where + ".layers", problems);
}

void check_heads(const HeadOptions& options, const std::string& where, Problems& problems) {
  const std::string prefix = where.empty() ? "" : where + ".";
  if (options.layers.empty()) {
    problems.add({.where = prefix + "layers", .what = "there are no heads to train", .expected = "at least one layer"});
  }
  if (options.rank.has_value() != (options.form == "low_rank")) {
    problems.add({.where = prefix + "rank",
                  .what = options.rank ? "full heads have no rank" : "low-rank heads need a rank",
                  .expected = options.rank ? "none given, or form = \"low_rank\"" : "1 or more",
                  .found = options.rank ? std::to_string(*options.rank) : "none given"});
  }
  check_early_layers(options.layers, 0, prefix + "layers", problems);
}

// Returns the layers; early_exit_average without a layer means BiLD's: the first.
std::vector<int64_t> layers_of(const ExitTrainingOptions& options, int64_t decoder_layers) {
  std::vector<int64_t> layers = options.layers;
  if (options.loss == kAverage && layers.empty()) layers.push_back(1);
  for (int64_t i = 1; options.loss == kCalm && i < decoder_layers; ++i) layers.push_back(i);
  return layers;
}

}  // namespace

Fields<ExitTrainingOptions> ExitTrainingOptions::fields() {
  using T = ExitTrainingOptions;
  return Fields<T>("training with exits")
      .add("loss", &T::loss, Choices{kAverage, kCalm, kWeighted},
           "early_exit_average: (L_n + L_last) / 2 of one exit (BiLD). calm_weighted: sum of w_i L_i over all layers "
           "with w_i = i / (1 + .. + N) (CALM). weighted: sum of w_i L_i with `weights`.")
      .add("layers", &T::layers, Range{1},
           "Layers whose outputs are read early, rising and below the last: exit n reads the output of layer n. "
           "early_exit_average takes one (absent: 1), calm_weighted none: it has them all.")
      .add("weights", &T::weights, Above{0},
           "Of `weighted`: one for each of `layers`, then the last layer's. They are taken as they are; with a sum of "
           "1 the loss has the size that it has without exits.")
      .add("own_norms", &T::own_norms,
           "Each exit has a final norm of its own, which begins as a copy of the model's; else it reads through the "
           "model's own.")
      .check(check_losses);
}

Fields<HeadOptions> HeadOptions::fields() {
  using T = HeadOptions;
  return Fields<T>("heads")
      .add("layers", &T::layers, Range{1}, Required{},
           "Layers that get a head, rising and below the last: head n reads the output of layer n.")
      .add("form", &T::form, Choices{"full", "low_rank"},
           "full: a head of its own, V x D numbers. low_rank: the model's head plus a product of V x rank and rank x "
           "D. Both begin as the model's head.")
      .add("rank", &T::rank, Range{1}, "Of low_rank; at most the width.")
      .add("own_norms", &T::own_norms, "Each head has a final norm of its own too; else it reads through the model's.")
      .add("seed", &T::seed, "Seed of the random start of low_rank.")
      .check(check_heads);
}

void check_early_layers(const std::vector<int64_t>& layers, int64_t decoder_layers, const std::string& where,
                        Problems& problems) {
  const auto wrong = [&](const char* what, std::string expected, std::string found) {
    problems.add({.where = where, .what = what, .expected = std::move(expected), .found = std::move(found)});
  };
  if (std::adjacent_find(layers.begin(), layers.end(), std::greater_equal<>()) != layers.end()) {
    wrong("layers are out of order, or one is given twice", "rising layers, each once",
          fmt::format("{}", fmt::join(layers, ", ")));
  }
  if (decoder_layers == 0) return;
  for (const int64_t layer : layers) {
    if (layer >= 1 && layer < decoder_layers) continue;
    wrong("an exit lies outside the model, or at its last layer, which is not an exit",
          decoder_layers > 1 ? fmt::format("a layer in 1..{}", decoder_layers - 1)
                             : "a model of more than one decoder layer",
          std::to_string(layer));
  }
}

void check_fits(const ExitTrainingOptions& options, int64_t decoder_layers, const std::string& where,
                Problems& problems) {
  if (options.loss == kCalm && decoder_layers < 2) {
    problems.add({.where = where,
                  .what = "a model of one decoder layer has no exits",
                  .expected = "2 decoder layers or more",
                  .found = std::to_string(decoder_layers)});
    return;
  }
  check_early_layers(layers_of(options, decoder_layers), decoder_layers, where + ".layers", problems);
}

model::ExitConfig exit_config(const ExitTrainingOptions& options, int64_t decoder_layers) {
  model::ExitConfig config;
  config.trained_as = options.loss;
  for (const int64_t layer : layers_of(options, decoder_layers)) {
    config.exits.push_back({.layer = layer, .own_norm = options.own_norms});
  }
  return config;
}

model::ExitConfig exit_config(const HeadOptions& options) {
  model::ExitConfig config;
  config.trained_as = "heads";
  const bool full = options.form == "full";
  for (const int64_t layer : options.layers) {
    config.exits.push_back({.layer = layer,
                            .head = full ? model::ExitHead::kFull : model::ExitHead::kLowRank,
                            .rank = options.rank.value_or(0),
                            .own_norm = options.own_norms});
  }
  return config;
}

std::vector<double> loss_weights(const ExitTrainingOptions& options, int64_t decoder_layers) {
  if (options.loss == kWeighted) return options.weights;
  if (options.loss == kAverage) return {0.5, 0.5};
  const auto all = static_cast<double>(decoder_layers * (decoder_layers + 1) / 2);
  std::vector<double> weights;
  for (int64_t i = 1; i <= decoder_layers; ++i) weights.push_back(static_cast<double>(i) / all);
  return weights;
}

namespace fs = std::filesystem;

namespace {

constexpr const char* kExitsPrefix = "exits.";

void save_both(const fs::path& directory, const model::TransformerModel& model, model::Exits exits,
               const model::SaveOptions& options, bool bind) {
  const fs::path place = model::require_free_place(directory);
  model::write_new_directory(place, [&](const fs::path& temporary) {
    model::write_model_files(temporary, model, options);
    // The run and the result are named, which stay the same wherever a recipe is run.
    const fs::path name = place.parent_path().filename() / place.filename();
    exits.bind(name.string(), bind ? model::model_hash(temporary) : "");
    model::save_exits(model::exits_directory(temporary), exits);
  });
}

// Returns the exits' predictions at a batch's labels. `layers`: the hidden states [B,T,D] of the exits' layers, in
// their order.
std::vector<Predictions> exit_predictions(const model::Exits& exits, const model::TransformerModel& model,
                                          const std::vector<at::Tensor>& layers, const Batch& batch) {
  std::vector<Predictions> predictions;
  for (const model::ExitShape& exit : exits.config().exits) {
    const at::Tensor read = at_labels(layers.at(predictions.size()), batch);  // [P,D]
    Predictions own{
        .model = &model, .hidden = exits.finish(model, exit.layer, read), .labels = batch.labels, .layer = exit.layer};
    if (exit.head != model::ExitHead::kShared) own.head = exits.head(model, exit.layer);
    predictions.push_back(std::move(own));
  }
  return predictions;
}

}  // namespace

ExitTrainable::ExitTrainable(model::TransformerModel& model, model::Exits& exits, std::vector<double> weights)
    : model_(model),
      exits_(exits),
      weights_(std::move(weights)),
      layers_(from_each(exits.config().exits, &model::ExitShape::layer)),
      parameters_(model.parameters()) {
  if (weights_.size() != layers_.size() + 1) throw std::logic_error("a loss of each exit and of the last layer");
  parameters_.merge(with_prefix(kExitsPrefix, exits.parameters()));
}

TrainableOutput ExitTrainable::forward(const Batch& batch, const model::DropoutContext& dropout) {
  model::ForwardInput input = input_of(batch);
  input.hidden_layers = layers_;
  const model::ForwardOutput pass = model_.forward(input, dropout);
  TrainableOutput output;
  output.predictions = {
      {.model = &model_, .hidden = at_labels(pass.hidden, batch), .labels = batch.labels, .weight = weights_.back()}};
  for (Predictions& exit : exit_predictions(exits_, model_, pass.layers, batch)) {
    exit.weight = weights_[output.predictions.size() - 1];
    output.predictions.push_back(std::move(exit));
  }
  return output;
}

void ExitTrainable::save(const fs::path& directory, const model::SaveOptions& options) const {
  save_both(directory, model_, exits_, options, false);
}

void ExitTrainable::save_result(const fs::path& directory, const model::SaveOptions& options) const {
  save_both(directory, model_, exits_, options, true);
}

void ExitTrainable::load(const fs::path& directory) {
  const auto stored = model::load_model(directory, {.device = info().device, .dtype = info().dtype, .pack = false});
  const auto exits = model::load_exits(model::exits_directory(directory), directory, *stored, false);
  auto parameters = stored->parameters();
  parameters.merge(with_prefix(kExitsPrefix, exits->parameters()));
  copy_parameters(parameters, parameters_, directory.string());
}

HeadTrainable::HeadTrainable(model::TransformerModel& model, model::Exits& heads, HeadsBase base)
    : model_(model),
      heads_(heads),
      base_(std::move(base)),
      layers_(from_each(heads.config().exits, &model::ExitShape::layer)) {
  for (const model::ExitShape& exit : heads.config().exits) {
    if (exit.head == model::ExitHead::kShared) throw std::logic_error("heads have weights of their own");
  }
}

TrainableOutput HeadTrainable::forward(const Batch& batch, const model::DropoutContext& /*dropout*/) {
  model::ForwardOutput pass;
  {
    const at::NoGradGuard frozen;
    model::ForwardInput input = input_of(batch);
    input.hidden_layers = layers_;
    pass = model_.forward(input);
  }
  TrainableOutput output;
  // The head cannot read the type that autocast produced.
  const at::Tensor taught_by = at_labels(pass.hidden, batch).to(info().dtype);
  output.teacher = {.model = &model_, .hidden = taught_by, .labels = batch.labels};
  output.predictions = exit_predictions(heads_, model_, pass.layers, batch);
  return output;
}

void HeadTrainable::save(const fs::path& directory, const model::SaveOptions& /*options*/) const {
  model::save_exits(directory, heads_);
}

void HeadTrainable::save_result(const fs::path& directory, const model::SaveOptions& /*options*/) const {
  if (base_.directory.empty()) throw std::logic_error("heads are saved with the model that they belong to");
  model::write_new_directory(directory, [&](const fs::path& temporary) {
    model::copy_model(base_.directory, temporary);
    const fs::path inside = model::exits_directory(temporary);
    fs::remove_all(inside);
    model::Exits bound = heads_;
    bound.bind(base_.name.empty() ? base_.directory.string() : base_.name, model::model_hash(temporary));
    model::save_exits(inside, bound);
  });
}

void HeadTrainable::load(const fs::path& directory) {
  const auto stored = model::load_exits(directory, base_.directory, model_, false);
  copy_parameters(stored->parameters(), heads_.parameters(), directory.string());
}

}  // namespace draftsmith::train
