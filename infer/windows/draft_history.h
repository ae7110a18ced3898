// The history of a text that is being drafted, as a router's context (model/kinds/router.h):
//
//   draft_position  ln(1 + tokens of this draft before the token) / 4
//   text_position   ln(1 + new tokens of the text before it) / 4
//   source_tokens   ln(1 + tokens of the encoder's input or the prompt) / 4
//   kept_share      mean of whether earlier drafted tokens were kept, of those that verification examined; each later
//                   one weakens the earlier ones by 7/8; begins at 1
//   kept_run        ln(1 + drafted tokens kept since the last rejection, or since the text's beginning) / 4
//
// Kept tokens are counted, not windows, so that windows of another length than those of the router's training change
// these numbers little.
#pragma once

#include <array>
#include <cstdint>

#include "infer/windows/window_rule.h"
#include "model/kinds/router.h"

namespace draftsmith::infer {

class DraftHistory {
 public:
  using Context = std::array<float, model::kRouterContext>;

  // A text without a new token. `source_tokens`: of the encoder's input or the prompt.
  explicit DraftHistory(int64_t source_tokens = 0) : source_tokens_(source_tokens) {}

  // Returns the context of the token of the coming draft with this index.
  Context context(int64_t draft_position) const;
  // Adds a finished window. Windows that nobody judged count as new text alone.
  void observe(const WindowOutcome& outcome);

 private:
  int64_t source_tokens_;
  int64_t emitted_ = 0;
  double kept_share_ = 1;
  int64_t kept_run_ = 0;
};

}  // namespace draftsmith::infer
