// The end of a round on the host: accepted drafts and the target's next tokens become text, and are counted.
#pragma once

#include <cstdint>
#include <span>

#include "infer/loop/drafting.h"
#include "infer/loop/row_verdict.h"

namespace draftsmith::infer {

// Commits the accepted tokens of each row's draft and the target's next token, counts the round, and tells the window
// rule and the batch's listener. Finished rows stay as they are. `verdicts` [B] of the draft, of which the host has the
// tokens.
void commit_verdicts(RowBatch& batch, const Draft& draft, std::span<const RowVerdict> verdicts, const DraftParts& parts,
                     std::span<const int64_t> eos);

}  // namespace draftsmith::infer
