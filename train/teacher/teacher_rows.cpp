#include "train/teacher/teacher_rows.h"

#include <limits>

namespace draftsmith::train {

namespace {

constexpr double kLeastHalf = -65504;  // a log that is smaller; its exponential is 0

at::Tensor to_half(const at::Tensor& logs) {
  return logs.clamp_min(kLeastHalf).to(at::kHalf);
}

}  // namespace

StoredRows store_rows(const at::Tensor& logits, const at::Tensor& labels, const StoredForm& form) {
  const at::Tensor wide = logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
  at::Tensor log_probs = (form.temperature == 1 ? wide : wide / form.temperature).log_softmax(1);  // [C,V]
  if (form.k == logits.size(1)) return {.log_probs = to_half(log_probs)};
  const at::Tensor ids = std::get<0>(std::get<1>(log_probs.topk(form.k, 1)).sort(1));  // int64 [C,k]
  const at::Tensor label = labels.unsqueeze(1);                                        // [C,1]
  StoredRows rows{.ids = ids.to(at::kInt),
                  .log_probs = to_half(log_probs.gather(1, ids)),
                  .label_log_probs = to_half(log_probs.gather(1, label).squeeze(1))};
  // The bucket's mass is summed over its ids: 1 minus the others would be mostly rounding when these take nearly all.
  const double nothing = -std::numeric_limits<double>::infinity();
  log_probs.scatter_(1, ids, nothing).scatter_(1, label, nothing);
  rows.tail_log_mass = to_half(log_probs.logsumexp(1));
  return rows;
}

TeacherBlock read_rows(const StoredRows& rows, const at::Tensor& labels, double temperature) {
  const at::Tensor log_probs = rows.log_probs.to(at::kFloat);  // [C,k]
  if (!rows.ids.defined()) return {.logits = temperature == 1 ? log_probs : log_probs * temperature};
  const at::Tensor ids = rows.ids.to(at::kLong);
  const at::Tensor label = labels.unsqueeze(1);
  const at::Tensor stored = ids.eq(label).any(1, true);  // [C,1]
  return {.ids = at::cat({ids, at::where(stored, -1, label)}, 1),
          .log_probs = at::cat({log_probs, rows.label_log_probs.to(at::kFloat).unsqueeze(1)}, 1),
          .tail_log_mass = rows.tail_log_mass.to(at::kFloat)};
}

}  // namespace draftsmith::train
