// Measures by which early exits decide whether a hidden state is finished (Schuster et al. 2022, section 3.5). Results
// come to the host in one transfer for all rows.
#pragma once

#include <vector>

#include "base/aten.h"
#include "base/registry.h"
#include "infer/loop/decode_settings.h"
#include "infer/loop/rows.h"
#include "model/models/exits.h"

namespace draftsmith::infer {

// Returns the cosine similarity of each row of two hidden states [B,...] of the same size, in [-1,1]; NaN if one of
// them is zero.
std::vector<double> cosine_similarities(const at::Tensor& a, const at::Tensor& b);

// Returns the difference of the two largest probabilities at temperature 1 of each row of logits [B,V]; 1 if only one
// token is possible, NaN if the logits are no distribution.
std::vector<double> top_two_margins(const at::Tensor& logits);

// CALM (Schuster et al. 2022), the early-exit baseline of BiLD's section 7.2: each token leaves the decoder at the
// first layer where its hidden state looks finished. That hidden state is then its input to all later layers.

// Measure that decides whether a hidden state is finished.
enum class ExitMeasure {
  kSaturation,  // cosine similarity to the previous layer's output; 0 after layer 1, which has none before it
  kMargin,      // difference of the two largest probabilities of the layer's exit
};

// Returns their names in options.
const NamedValues<ExitMeasure>& exit_measures();

struct CalmSettings {
  ExitMeasure measure = ExitMeasure::kSaturation;
  double threshold = 0.9;  // lambda
  double decay = 4;        // temp
};

// Returns the threshold that the measure must pass at the new token with index t (from 0) of at most N = `longest`:
// lambda_t = clip(0.9 lambda + 0.1 exp(-temp t / N), 0, 1). The ends do not decay: lambda >= 1 gives 1, so no token
// leaves early; lambda <= 0 gives 0, so every token leaves at layer 1 whatever the measure. Otherwise no token leaves
// at layer 1 by saturation, as in the program that Schuster et al. released.
double calm_threshold(const CalmSettings& settings, int64_t t, int64_t longest);

// Decodes every row to its end, greedily or by sampling, as decode_plainly() does. Writes layer_runs and exits_by_layer
// of the rows' statistics. A token's logits come from the exit where it left, after the last layer from the model's own
// head. The margin is measured before the logits processors are applied. Without `exits` (nullptr) all exits read the
// model's final norm and head.
void decode_calm(model::TransformerModel& target, const model::Exits* exits, const CalmSettings& calm,
                 const DecodeSettings& settings, RowBatch& batch, PhaseTimer& timer);

}  // namespace draftsmith::infer
