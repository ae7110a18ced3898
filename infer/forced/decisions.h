// How decoding came to finished outputs, found by passes of their own: which tokens were near, what distribution
// samples must have, and how much logits depend on the form of a step.
#pragma once

#include <cstdint>
#include <span>

#include "infer/forced/teacher_forcing.h"
#include "infer/generator.h"
#include "infer/load_models.h"

namespace draftsmith::infer {

// Returns the logits [B,V], fp64 on the CPU, that decide the token after texts.outputs[i], which may be empty: after
// processors, -inf for padding ids. `generator` is the one that decoded, made of `models`. Reads sources and outputs of
// `texts`.
at::Tensor decision_logits(const Generator& generator, const GenerationModels& models, const ForcedBatch& texts);

// Returns the distribution [B,V], fp64 on the CPU, that the generator samples from: decision_logits(), warped.
at::Tensor decision_probabilities(const Generator& generator, const GenerationModels& models, const ForcedBatch& texts);

// Returns the rounding error of a model's logits on the outputs: the largest difference between steps of one token and
// steps of each of the `widths`, at least one unit in the last place of the largest logit. Logits of padding ids count.
double logit_rounding(model::LanguageModel& model, const ForcedBatch& texts, std::span<const int64_t> widths);

}  // namespace draftsmith::infer
