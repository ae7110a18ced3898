// Keys of counted drafts, runs and tokens in results.json; a part of results_json.cpp.
#pragma once

#include "evaluate/results/json_io.h"
#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

template <class Io>
void visit(Io& io, Of<Io, Acceptance>& acceptance) {
  io("alpha", acceptance.alpha);
  io("alpha_conditional", acceptance.alpha_conditional);
  io("acceptance_rate", acceptance.acceptance_rate);
  io("tokens_per_target_run", acceptance.tokens_per_target_run);
  io("accepted_histogram", acceptance.accepted_histogram);
  io("acceptance_by_position", acceptance.acceptance_by_position);
  io("fallback_rate", acceptance.fallback_rate);
  io("rollback_rate", acceptance.rollback_rate);
  io("tokens", acceptance.tokens);
  io("target_runs", acceptance.target_runs);
  io("draft_runs", acceptance.draft_runs);
  io("target_runs_per_output", acceptance.target_runs_per_output);
  io("draft_runs_per_output", acceptance.draft_runs_per_output);
  io("verifications", acceptance.verifications);
  io("drafted", acceptance.drafted);
  io("accepted", acceptance.accepted);
  io("fallbacks", acceptance.fallbacks);
  io("rollbacks", acceptance.rollbacks);
  io("unverified", acceptance.unverified);
}

}  // namespace draftsmith::evaluate
