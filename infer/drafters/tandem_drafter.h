// The drafter `tandem`: a Tandem secondary (model/kinds/tandem.h; Nair et al. 2024, section 3). It reads the primary's
// projected representations of all tokens that the primary has processed, which is everything but a row's last
// committed token, and its own of the tokens since: b is counted row by row, and any window will do.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "infer/drafters/drafter.h"
#include "model/transformer/decoder_state.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::infer {

class TandemDrafter : public Drafter {
 public:
  // `secondary` must be a Tandem secondary of the decoding loop's target, with its vocabulary, and outlive the drafter.
  explicit TandemDrafter(model::TransformerModel& secondary);

  DrafterTraits traits() const override { return {.name = "tandem", .reads_target = true}; }
  // Encoder-decoder: projects the target's encoder states.
  void encode(const DraftBegin& begin) override;
  void prefill(const DraftBegin& begin) override;
  at::Tensor next_logits(const DraftRequest& request) override;
  // What was drafted leaves the cache; what the target has processed and was committed takes its place, projected.
  void observe(const DraftObservation& observation) override;
  void select_rows(std::span<const int64_t> rows) override;
  // The representations that the layer map names, each once.
  std::vector<int64_t> target_layers() const override { return layers_; }

  // For tests that compare caches.
  const model::DecoderState& state() const { return *state_; }

 private:
  // Appends `counts[b]` tokens of each row to the cache, given target_layers() of them, [B,>=L,D_L] each.
  void write(std::span<const at::Tensor> hidden, const std::vector<int64_t>& counts);

  model::TransformerModel& secondary_;
  std::vector<int64_t> layers_;  // rising
  std::vector<size_t> place_;    // [decoder layers] of each layer's representation in layers_
  model::EncoderStates encoder_;
  std::unique_ptr<model::DecoderState> state_;
};

}  // namespace draftsmith::infer
