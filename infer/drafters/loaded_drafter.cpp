#include "infer/drafters/loaded_drafter.h"

#include "infer/costs/step_costs.h"
#include "infer/drafters/drafter.h"
#include "infer/forced/teacher_forcing.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::infer {

const model::TransformerModel* LoadedDrafter::transformer() const {
  return dynamic_cast<const model::TransformerModel*>(model());
}

StepCosts LoadedDrafter::step_costs(const DraftTarget& target, const CalibrationContext& context,
                                    int64_t max_tokens) const {
  return measure_step_costs(target.model, *make(target), context, max_tokens);
}

ForcedAlpha LoadedDrafter::forced_alpha(const DraftTarget& target, const ForcedBatch& texts, const Warping& warping,
                                        int64_t /*block*/) const {
  return measure_forced_alpha(target.model, *make(target), texts.sources, texts.outputs, warping);
}

}  // namespace draftsmith::infer
