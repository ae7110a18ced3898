#include "infer/acceptance/exact.h"

namespace draftsmith::infer {

Judgement ExactAcceptance::judge(const Verification& verification) {
  const int64_t window = verification.tokens.size(1);
  const auto choice = most_likely(verification.logits);                   // [B,G+1]
  const auto same = choice.narrow(1, 0, window).eq(verification.tokens);  // [B,G]
  Judgement judgement;
  judgement.accepted = leading(same & drafted_positions(verification));
  judgement.next = choice.gather(1, judgement.accepted.unsqueeze(1)).squeeze(1);
  judgement.overlap = same.to(at::kDouble);  // one-hot distributions overlap fully or not at all
  return judgement;
}

}  // namespace draftsmith::infer
