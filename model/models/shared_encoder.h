// Drafters that share their target's encoder: decoders that read another model's encoder states through a projection.
// The drafter with that encoder as one model, its making, and its directory.
#pragma once

#include <memory>
#include <optional>

#include "model/models/companion.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

// A drafter and the encoder that it shares as one model, which writes by itself: for validation in training, for texts
// that are given, and where single steps are timed.
class SharedEncoderPair final : public LanguageModel {
 public:
  // Takes a drafter of shared_encoder_kind() and a model whose encoder states have the width that it reads, both on one
  // device. They must outlive this object.
  SharedEncoderPair(TransformerModel& drafter, LanguageModel& target) : drafter_(drafter), target_(target) {}

  const ModelInfo& info() const override { return drafter_.info(); }
  // Runs the target's encoder and projects its states.
  EncoderStates encode(const TokenBatch& source) override { return drafter_.project_encoder(target_.encode(source)); }
  // The rest is the drafter's own.
  std::unique_ptr<DecodeState> begin(const EncoderStates& source, int64_t capacity, int64_t samples = 1) override {
    return drafter_.begin(source, capacity, samples);
  }
  std::unique_ptr<DecodeState> begin(int64_t rows, int64_t capacity) override { return drafter_.begin(rows, capacity); }
  StepOutput step(const StepInput& input, DecodeState& state) override { return drafter_.step(input, state); }
  void give_back(std::unique_ptr<DecodeState> state) override { drafter_.give_back(std::move(state)); }
  void free_states() override { drafter_.free_states(); }
  std::optional<DevicePlaces> device_places(DecodeState& state) override { return drafter_.device_places(state); }
  StepOutput step_on_device(const DeviceStepInput& input, DecodeState& state) override {
    return drafter_.step_on_device(input, state);
  }

 private:
  TransformerModel& drafter_;
  LanguageModel& target_;
};

// A drafter that shares its target's encoder: the decoder of an encoder-decoder whose cross-attention reads
//   P · h_s for each source token s, h the encoder states of another model, P [D,D_L] one linear projection.
// It has no encoder, so that a source costs it the projection alone; the decoder is an ordinary causal one. Where a
// Tandem secondary (model/models/tandem.h) reads the target's decoder too, this drafter reads nothing but its encoder.
// It is a TransformerModel with config.shared_encoder_width.
//
// Its directory is named DraftsmithSharedEncoder<architecture>. config.json has the width, and the target by its path
// (relative to the directory) and model_hash():
//   "draftsmith_shared_encoder": {"width": D_L, "target": {"path", "sha256"}}

// Returns the kind of drafters that share their target's encoder.
const ModelKind& shared_encoder_kind();

// Refuses a drafter, or a model to become one, that cannot read this target's encoder: both must be encoder-decoders
// that begin and end texts alike (check_pair), and a drafter's projection must be of the target's width. Errors:
// UserError with every disagreement and both names.
void require_shared_encoder_pair(const TransformerConfig& drafter, const TransformerConfig& target,
                                 const PairNames& names);

// Makes a drafter from an ordinary model (loaded unpacked), which gives its decoder's parameters; its encoder is left
// behind. `target` may be packed. Errors: UserError (require_shared_encoder_pair).
std::unique_ptr<TransformerModel> make_shared_encoder_drafter(const TransformerModel& ordinary,
                                                              const TransformerModel& target,
                                                              const ProjectionOptions& projection = {});

}  // namespace draftsmith::model
