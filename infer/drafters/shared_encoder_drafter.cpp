#include "infer/drafters/shared_encoder_drafter.h"

#include "infer/costs/step_costs.h"
#include "infer/drafters/reading_drafter.h"
#include "infer/forced/forced_alpha.h"
#include "model/files/checkpoint.h"
#include "model/kinds/shared_encoder.h"
#include "model/kinds/shared_encoder_pair.h"

namespace draftsmith::infer {

namespace {

class LoadedSharedEncoder final : public ReadingDrafter {
 public:
  using ReadingDrafter::ReadingDrafter;

  std::unique_ptr<Drafter> make(const DraftTarget& target) const override {
    return std::make_unique<SharedEncoderDrafter>(drafter(), target.model.info().vocabulary);
  }

  // Steps read what the encoder left, so the encoder is in none of them.
  StepCosts step_costs(const DraftTarget& target, const CalibrationContext& context,
                       int64_t max_tokens) const override {
    model::SharedEncoderPair alone(drafter(), target.model);
    return measure_step_costs(target.model, alone, context, max_tokens);
  }

  ForcedAlpha forced_alpha(const DraftTarget& target, const ForcedBatch& texts, const Warping& warping,
                           int64_t /*block*/) const override {
    model::SharedEncoderPair alone(drafter(), target.model);
    return measure_forced_alpha({target.model, alone}, texts.sources, texts.outputs, warping);
  }

 private:
  void require_pair(const model::TransformerConfig& target, const model::PairNames& names) const override {
    model::require_shared_encoder_pair(drafter().config(), target, names);
  }
};

}  // namespace

SharedDrafter load_shared_encoder_drafter(const std::filesystem::path& directory, const std::filesystem::path& target,
                                          const model::LoadOptions& options) {
  return std::make_shared<LoadedSharedEncoder>(model::load_shared_encoder(directory, target, options), directory);
}

SharedDrafter shared_encoder_drafter(std::shared_ptr<model::TransformerModel> drafter,
                                     const data::Tokenizer* tokenizer) {
  return std::make_shared<LoadedSharedEncoder>(std::move(drafter), tokenizer);
}

}  // namespace draftsmith::infer
