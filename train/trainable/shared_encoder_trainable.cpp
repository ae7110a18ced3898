#include "train/trainable/shared_encoder_trainable.h"

#include <algorithm>

#include "train/plain_arithmetic.h"

namespace draftsmith::train {

SharedEncoderTrainable::SharedEncoderTrainable(model::TransformerModel& drafter, model::TransformerModel& target,
                                               SharedEncoderOptions options)
    : drafter_(drafter), target_(target), options_(std::move(options)), info_(of_both(drafter.info(), target.info())) {
  model::require_shared_encoder_pair(drafter.config(), target.config(), {drafter.info().name, target.info().name});
  info_.vocabulary = std::min(info_.vocabulary, target.info().vocabulary);
}

at::Tensor SharedEncoderTrainable::read_target(const Batch& batch, TrainableOutput& output) {
  const PlainArithmetic plain(info_.device.type());
  if (!options_.teaches) return target_.encode(batch.source).hidden;
  model::ForwardInput input;
  input.source = batch.source;
  input.target = batch.decoder_input;
  const model::ForwardOutput read = target_.forward(input);
  output.teacher = {.model = &target_, .hidden = at_labels(read.hidden, batch), .labels = batch.labels};
  return read.encoder;
}

TrainableOutput SharedEncoderTrainable::forward(const Batch& batch, const model::DropoutContext& dropout) {
  TrainableOutput output;
  model::ForwardInput input;
  input.source = batch.source;
  input.target = batch.decoder_input;
  input.shared_encoder = read_target(batch, output).to(info_.dtype);  // its type may be narrower than the drafter's
  const at::Tensor hidden = drafter_.forward(input, dropout).hidden;  // [B,T,D]
  output.predictions = {{.model = &drafter_, .hidden = at_labels(hidden, batch), .labels = batch.labels}};
  return output;
}

TextWriters SharedEncoderTrainable::text_writers() const {
  TextWriters writers;
  // The target is as it was loaded, and belongs to somebody else.
  writers.target = {std::shared_ptr<void>(), &target_};
  writers.shared_encoder = packed_copy(drafter_);
  return writers;
}

void SharedEncoderTrainable::save(const std::filesystem::path& directory, const model::SaveOptions& options) const {
  model::save_model(directory, drafter_, options);
}

void SharedEncoderTrainable::save_result(const std::filesystem::path& directory,
                                         const model::SaveOptions& options) const {
  model::save_shared_encoder(directory, drafter_, options_.target_directory, options);
}

void SharedEncoderTrainable::load(const std::filesystem::path& directory) {
  const model::LoadOptions options{.device = info_.device, .dtype = info_.dtype, .pack = false};
  const auto stored = model::load_shared_encoder(directory, {}, options);
  copy_parameters(stored->parameters(), drafter_.parameters(), directory.string());
}

}  // namespace draftsmith::train
