// CALM (Schuster et al. 2022), the early-exit baseline of BiLD's section 7.2: each token leaves the decoder at the
// first layer where it looks finished, and its hidden state there stands in for its input to all layers after it.
#pragma once

#include "infer/loop/decode_loop.h"
#include "model/kinds/exits.h"

namespace draftsmith::infer {

// What says that a hidden state is finished.
enum class ExitMeasure {
  kSaturation,  // cosine similarity to the layer before; of layer 1 to the embedding
  kMargin,      // difference of the two largest probabilities, through the layer's exit
};

struct CalmSettings {
  ExitMeasure measure = ExitMeasure::kSaturation;
  double threshold = 0.9;  // lambda
  double decay = 4;        // temp
};

// lambda_t = clip(0.9 lambda + 0.1 exp(-temp t / N), 0, 1), of the new token with index t from 0, of at most N: what
// the measure must pass. The ends do not decay: for lambda >= 1 it is 1, where no token leaves early, for lambda <= 0
// it is 0, where every one leaves at layer 1 whatever the measure.
double calm_threshold(const CalmSettings& settings, int64_t t, int64_t longest);

// Decodes every row to its end, as decode_plainly does, greedily or sampling. Writes layer_runs and exits_by_layer of
// the rows' statistics. A token takes the logits of the exit where it left (the margin sees them before the logits
// processors do); after the last layer those of the model itself. `exits` may be nullptr: all exits read the model's
// final norm and head.
void decode_calm(model::TransformerModel& target, const model::Exits* exits, const CalmSettings& calm,
                 const DecodeSettings& settings, RowBatch& batch, PhaseTimer& timer);

}  // namespace draftsmith::infer
