// Losses over one head, as the tests of losses ask for them.
#pragma once

#include "train/objectives/cross_entropy_loss.h"
#include "train/objectives/distill.h"
#include "train/objectives/linear_loss.h"

namespace draftsmith::train {

inline at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                                       double label_smoothing) {
  const auto loss = cross_entropy_loss(labels, label_smoothing);
  return linear_loss({{.hidden = hidden, .head = {weight}, .loss = loss.get()}});
}

inline at::Tensor linear_distillation(const at::Tensor& hidden, const at::Tensor& weight, const Teaching& teaching,
                                      const DistillationTerms& terms) {
  const auto loss = make_distillation_loss(teaching, terms);
  return linear_loss({{.hidden = hidden, .head = {weight}, .loss = loss.get()}});
}

}  // namespace draftsmith::train
