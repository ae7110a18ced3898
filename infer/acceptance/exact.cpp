#include "infer/acceptance/exact.h"

#include "infer/acceptance/row_verification.h"
#include "infer/sampling/row_kernels.h"

namespace draftsmith::infer {

namespace {

template <class T>
RowJudgement judge_exactly(const RowVerification<T>& in, int64_t b, double* overlaps) {
  RowJudgement row;
  for (;; ++row.accepted) {
    row.next = row_argmax(in.logits(b, row.accepted), in.vocabulary());
    if (row.accepted == in.drafted(b) || row.next != in.token(b, row.accepted)) return row;
    if (overlaps != nullptr) overlaps[row.accepted] = 1;
  }
}

}  // namespace

Judgement ExactAcceptance::judge(const Verification& verification) {
  if (!judged_by_rows(verification)) return judge_tensors(verification);
  return judge_rows(verification, verification.tokens.size(1) > 0,
                    [](const auto& rows, int64_t b, double* overlaps) { return judge_exactly(rows, b, overlaps); });
}

Judgement ExactAcceptance::judge_tensors(const Verification& verification) const {
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
