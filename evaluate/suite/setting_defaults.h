// Options of decoding that settings of a suite have in common: defaults, and what baselines take over.
#pragma once

#include "evaluate/suite/suite_options.h"
#include "infer/decode_options.h"

namespace draftsmith::evaluate {

// Takes each of temperature, top_k, top_p and min_p that `decode` lacks from `from`.
void take_sampling(const DecodeOptions& from, DecodeOptions& decode);

// Takes what changes the decoding of every method alike: processors and stop strings.
void take_processors(const DecodeOptions& from, DecodeOptions& decode);

// Returns the options with defaults of sampling and beam search. A model's own settings would make models incomparable.
DecodeOptions with_defaults(DecodeOptions decode);

// Returns the suite with router defaults filled in where a run lists no thresholds or no longest drafts, so that
// results record them. Errors: UserError for a damaged router. A missing router is refused later.
SuiteOptions with_router_defaults(const SuiteOptions& options);

}  // namespace draftsmith::evaluate
