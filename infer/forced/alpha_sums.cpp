#include "infer/forced/alpha_sums.h"

#include <algorithm>

#include "infer/acceptance/acceptance_rule.h"

namespace draftsmith::infer {

void AlphaSums::add(const LogitsPair& logits, const ForcedLabels& given) {
  const ForcedLabels labels{given.ids.to(logits.target.device()), given.counted.to(logits.target.device())};
  const int64_t shared = std::min(logits.target.size(2), logits.drafter.size(2));
  const auto p = logits.target.narrow(2, 0, shared);
  const auto q = logits.drafter.narrow(2, 0, shared);
  const auto choice = most_likely(p);  // [B,L]
  const auto drafted = most_likely(q);
  const auto same = choice.eq(drafted) & choice.ne(kNoToken) & labels.counted;
  same_ += same.sum().item<int64_t>();
  positions_ += labels.counted.sum().item<int64_t>();
  target_.add(logits.target, choice, labels);
  drafter_.add(logits.drafter, drafted, labels);
  if (warping_.greedy()) return;
  overlap_ += at::where(labels.counted, overlap(warp(p, warping_), warp(q, warping_)), 0.0).sum().item<double>();
}

void AlphaSums::add_batch(const TeacherForcing& target, const ForcedBatch& batch,
                          const std::function<LogitsPair(int64_t width)>& step) {
  const int64_t at_once = target.positions_at_once();
  for (int64_t done = 0; done < target.longest(); done += at_once) {
    const int64_t width = std::min(at_once, target.longest() - done);
    const std::vector<int64_t> valid = target.valid(width);
    const std::vector<int64_t> first(valid.size(), done);
    add(step(width), labels_of(batch.outputs, first, valid, width));
  }
}

void AlphaSums::add(const at::Tensor& logits, int64_t label, DrafterProbe& drafter) {
  ++positions_;
  const int64_t token = drafter.next_token();
  const at::Tensor choice = most_likely(logits);  // [1,1]
  same_ += token != kNoProposal && token == choice.item<int64_t>() ? 1 : 0;
  const ForcedLabels labels{at::full_like(choice, label), at::ones_like(choice, at::kBool)};
  target_.add(logits, choice, labels);
  at::Tensor own;  // [1,1,V]
  if (drafter.gives_logits()) own = drafter.next_logits().unsqueeze(1);
  if (own.defined()) {
    drafter_.add(own, at::full_like(choice, token), labels);
  } else {
    drafter_.add(token == label);
  }
  if (warping_.greedy()) return;
  const auto p = warp(logits, warping_);  // [1,1,V]
  if (own.defined()) {
    overlap_ += overlap(p, warp(own, warping_)).item<double>();
  } else if (token != kNoProposal) {
    overlap_ += p[0][0][token].item<double>();
  }
}

ForcedAlpha AlphaSums::mean() const {
  if (positions_ == 0) return {};
  const auto positions = static_cast<double>(positions_);
  const double agreement = static_cast<double>(same_) / positions;
  return {warping_.greedy() ? agreement : overlap_ / positions, agreement, positions_, target_.mean(), drafter_.mean()};
}

}  // namespace draftsmith::infer
