// Recorders of a step's operators. While one is set on a thread, the operators of model/layers/linear_rows.h and
// step_operators.h go there in place of the device: several of them may then be one launch
// (model/layers/step_program.h).
#pragma once

#include <optional>

#include "model/layers/linear_weights.h"
#include "model/layers/post_op.h"
#include "model/layers/visible_keys.h"

namespace draftsmith::model {

struct CachedAttentionInput;  // model/layers/dense_attention.h

class StepRecorder {
 public:
  virtual ~StepRecorder() = default;

  // Each of these records an operator, and returns its result without contents yet. Nothing, or false: the recorder
  // does not take the operator, and has run what it recorded; the operator runs now.

  // linear_rows(), or gated_rows() if `up` has weights; without a residual if it is undefined.
  virtual std::optional<at::Tensor> linear_rows(const at::Tensor& x, const InputNorm& norm, const LinearWeights& layer,
                                                const LinearWeights& up, PostOp then, const at::Tensor& residual) = 0;
  virtual std::optional<at::Tensor> attend(const CachedAttentionInput& input, const VisibleSlots& slots) = 0;
  virtual bool write_at(const at::Tensor& key_cache, const at::Tensor& value_cache, const at::Tensor& key,
                        const at::Tensor& value, const at::Tensor& row, const at::Tensor& slot) = 0;
  virtual bool rotate_at(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine,
                         const at::Tensor& position, int64_t head_width) = 0;

  // Returns the recorder of this thread; nullptr: operators run at once.
  static StepRecorder* current();
};

// Sets the recorder of this thread while it lives; nullptr: none.
class StepRecording {
 public:
  explicit StepRecording(StepRecorder* recorder);
  ~StepRecording();
  StepRecording(const StepRecording&) = delete;
  StepRecording& operator=(const StepRecording&) = delete;

 private:
  StepRecorder* before_;
};

}  // namespace draftsmith::model
