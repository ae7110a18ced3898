#include "train/trainable/head_trainable.h"

#include <stdexcept>

#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "model/files/copy_model.h"
#include "model/files/model_hash.h"
#include "model/files/new_directory.h"
#include "train/trainable/exit_trainable.h"

namespace draftsmith::train {

namespace fs = std::filesystem;

HeadTrainable::HeadTrainable(model::TransformerModel& model, model::Exits& heads, HeadsBase base)
    : model_(model), heads_(heads), base_(std::move(base)), layers_(layers_of(heads)) {
  for (const model::ExitShape& exit : heads.config().exits) {
    if (exit.head == model::ExitHead::kShared) throw std::logic_error("heads have weights of their own");
  }
}

TrainableOutput HeadTrainable::forward(const Batch& batch, const model::DropoutContext& /*dropout*/) {
  model::ForwardOutput pass;
  {
    const at::NoGradGuard frozen;
    model::ForwardInput input;
    input.source = batch.source;
    input.target = batch.decoder_input;
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
    bound.bind(base_.name.empty() ? base_.directory.string() : base_.name, unchanged_hash(temporary));
    model::save_exits(inside, bound);
  });
}

// Returns the hash of the copy, which must be the model that was trained on.
std::string HeadTrainable::unchanged_hash(const fs::path& copy) const {
  const std::string hash = model::model_hash(copy);
  if (base_.hash.empty() || hash == base_.hash) return hash;
  throw RunError({.where = base_.directory.string(),
                  .what = "the model changed while heads were trained for it",
                  .expected = "sha256 " + base_.hash,
                  .found = "sha256 " + hash,
                  .hint = "put the model back, or train the heads anew"});
}

void HeadTrainable::load(const fs::path& directory) {
  const auto stored = model::load_exits(directory, base_.directory, model_, false);
  copy_parameters(stored->parameters(), heads_.parameters(), directory.string());
}

}  // namespace draftsmith::train
