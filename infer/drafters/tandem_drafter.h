// The drafter `tandem`, a Tandem secondary (model/models/tandem.h; Nair et al. 2024, section 3). It reads the primary's
// projected representations of the tokens that the primary has processed: all but a row's last committed token. Of the
// tokens since it reads its own. The block length is counted row by row, so windows may have any length.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "infer/drafters/drafter.h"
#include "infer/drafters/model_drafter.h"
#include "model/transformer/decoder_state.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::infer {

class TandemDrafter : public Drafter {
 public:
  // `secondary` must be a Tandem secondary of the decoding loop's target and outlive the drafter. `vocabulary` is the
  // target's: logits have this width, whatever ids pad the secondary's. 0: the secondary's own.
  explicit TandemDrafter(model::TransformerModel& secondary, int64_t vocabulary = 0);
  ~TandemDrafter() override { secondary_.give_back(std::move(state_)); }

  DrafterTraits traits() const override { return traits_of(DrafterKind::kTandem); }
  // Projects the target's encoder states (encoder-decoder).
  void encode(const DraftBegin& begin) override;
  void prefill(const DraftBegin& begin) override;
  at::Tensor next_logits(const DraftRequest& request) override;
  // Replaces the drafted tokens in the cache by the projected representations of the committed tokens that the target
  // has processed. Rows without room get no more.
  void observe(const DraftObservation& observation) override;
  void select_rows(std::span<const int64_t> rows) override;
  int64_t room(const Row& row) const override { return positions_left(secondary_.info(), row, false); }
  // Returns the layers that the layer map names, each once.
  std::vector<int64_t> target_layers() const override { return layers_; }

  // For tests that compare caches.
  const model::DecoderState& state() const { return *state_; }

 private:
  // Appends `counts[b]` tokens of each row to the cache, from their hidden states in target_layers(), [B,>=L,D_L] each.
  void append_primary(std::span<const at::Tensor> hidden, const std::vector<int64_t>& counts);

  model::TransformerModel& secondary_;
  int64_t vocabulary_;           // of the target
  std::vector<int64_t> layers_;  // rising
  std::vector<size_t> place_;    // [decoder layers] of each layer's representation in layers_
  model::EncoderStates encoder_;
  std::unique_ptr<model::DecoderState> state_;
};

// Returns a transformer's decode state as what it is. Throws std::logic_error for one of another kind of model.
std::unique_ptr<model::DecoderState> transformer_state(std::unique_ptr<model::DecodeState> state);

// A loaded drafter that reads its target's hidden states: a Tandem secondary, or a features drafter.
class LoadedStateReader : public ReadingDrafter {
 public:
  using ReadingDrafter::ReadingDrafter;

  bool reads_target() const override { return true; }
  // Reading the target's states, once for each verification, counts as part of the target's step.
  StepCosts step_costs(const DraftTarget& target, const CalibrationContext& context, int64_t max_tokens) const override;
  // In blocks of `block` tokens (0: as it was trained). The drafter reads the target's states up to a block's
  // beginning, as it does in decoding when all drafts are accepted.
  ForcedAlpha forced_alpha(const DraftTarget& target, const ForcedBatch& texts, const Warping& warping,
                           int64_t block) const override;

 private:
  // Returns the length of drafts that it was trained for.
  virtual int64_t block() const = 0;
};

// Makes a drafter of a Tandem secondary; arguments as in ReadingDrafter.
SharedDrafter tandem_drafter(std::shared_ptr<model::TransformerModel> secondary,
                             const data::Tokenizer* tokenizer = nullptr, std::filesystem::path directory = {});

}  // namespace draftsmith::infer
