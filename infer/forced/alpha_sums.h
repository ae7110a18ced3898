// Sums over positions of teacher-forced texts: how well a drafter predicts a target, and how well each predicts the
// texts' own tokens (methods.md §3).
#pragma once

#include <cstdint>
#include <functional>

#include "infer/drafters/drafter_probe.h"
#include "infer/forced/prediction_quality.h"
#include "infer/forced/teacher_forcing.h"
#include "infer/sampling/sampling.h"

namespace draftsmith::infer {

constexpr size_t kForcedRows = 16;  // texts in a teacher-forced batch

struct ForcedAlpha {
  double alpha = 0;      // mean of sum_x min(p, q) of the warped distributions; at temperature 0 equal to agreement
  double agreement = 0;  // share of positions where both find the same token most likely
  int64_t positions = 0;
  PredictionQuality target = {};   // of the texts' own tokens
  PredictionQuality drafter = {};  // of the texts' own tokens
};

// Logits of both models, [B,L,V]; V may differ.
struct LogitsPair {
  at::Tensor target;
  at::Tensor drafter;
};

class AlphaSums {
 public:
  explicit AlphaSums(const Warping& warping) : warping_(warping) {}

  // Adds the positions that `labels` counts.
  void add(const LogitsPair& logits, const ForcedLabels& labels);
  // Adds all positions of a batch; `step` returns the logits of its next `width` positions.
  void add_batch(const TeacherForcing& target, const ForcedBatch& batch,
                 const std::function<LogitsPair(int64_t width)>& step);
  // Adds one position whose token is `label`: the target's logits [1,1,V] against the drafter's next token.
  void add(const at::Tensor& logits, int64_t label, DrafterProbe& drafter);
  // Returns the means; all members are 0 without positions.
  ForcedAlpha mean() const;

 private:
  Warping warping_;
  QualitySums target_;
  QualitySums drafter_;
  double overlap_ = 0;
  int64_t same_ = 0;
  int64_t positions_ = 0;
};

}  // namespace draftsmith::infer
