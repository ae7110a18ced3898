// How decoding came to finished outputs, found by passes of their own: who wrote each token, which tokens were near,
// what distribution samples must have, and how much logits depend on the form of a step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "infer/decode_options.h"
#include "infer/forced/teacher_forcing.h"
#include "infer/generator.h"
#include "infer/load_models.h"

namespace draftsmith::infer {

// Returns the logits [B,V], fp64 on the CPU, that decide the token after texts.outputs[i], which may be empty: after
// processors, -inf for padding ids. `generator` is the one that decoded, made of `models`. Reads sources and outputs of
// `texts`.
at::Tensor decision_logits(const Generator& generator, const GenerationModels& models, const ForcedBatch& texts);

// Returns the distribution [B,V], fp64 on the CPU, that the generator samples this token from: decision_logits(),
// warped.
at::Tensor decision_probabilities(const Generator& generator, const GenerationModels& models, const ForcedBatch& texts);

// Returns the rounding error of a model's logits on the outputs: the largest difference between steps of one token and
// steps of each of the `widths`, at least one unit in the last place of the largest logit. Logits of padding ids count.
double logit_rounding(model::LanguageModel& model, const ForcedBatch& texts, std::span<const int64_t> widths);

// Where each token of an output is from: a draft that the target kept, the target itself, or a draft that was taken
// back (Kim et al. 2023, figure 9).
enum class TokenOrigin {
  kDrafted,     // drafted, and kept by the target
  kUnverified,  // drafted at the end of an output that the target did not judge (BiLD)
  kTarget,      // the target's own
  kRejected,    // drafted and taken back: no token of the output
};

struct TracedToken {
  int64_t id = 0;
  TokenOrigin origin = TokenOrigin::kTarget;
};

// Draft that the target judged.
struct JudgedDraft {
  int64_t position = 0;  // new tokens of the output before it
  std::vector<int64_t> tokens;
  int64_t accepted = 0;  // tokens of it that were kept
};

// Returns the tokens of an output and those taken back, in the order in which they were written. `drafts` are in the
// order of their positions. The last `unverified` tokens were drafted and not judged; other tokens outside the drafts
// are the target's.
std::vector<TracedToken> traced_tokens(std::span<const int64_t> output, std::span<const JudgedDraft> drafts,
                                       int64_t unverified = 0);

// Decodes one source (as Generator::generate() takes them) with the index `line` in the random streams. Returns nothing
// for methods whose target verifies no drafts, and for an output without finite logits. Windows that go on across texts
// begin anew.
std::vector<TracedToken> trace_output(GenerationModels models, DecodeOptions options,
                                      const std::vector<int64_t>& source, uint64_t line);

}  // namespace draftsmith::infer
