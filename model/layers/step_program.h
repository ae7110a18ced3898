// A decoding step's operators as one launch. From the first to the last layer of a small model a step is bound by the
// number of its launches, about 2.2 us each when replayed (docs/results/gpu.md). A program records the operators, and a
// kernel whose blocks are all on the GPU at once does them one after the other: between two its blocks wait for one
// another, about 1.2 us, and ask for the weights that come next (model/layers/kernels/step_program.cu). Both times are
// estimates. Results are those of the single kernels to the bit.
//
// LibTorch's dispatcher knows programs as draftsmith::run_steps. DRAFTSMITH_STEP_PROGRAMS=on turns them on: they are
// off until a GPU has shown that they are faster.
#pragma once

#include <vector>

#include "model/layers/dense_attention.h"
#include "model/layers/step_operation.h"
#include "model/layers/step_recorder.h"

namespace draftsmith::model {

// Counters that a program's launches use, one a kernel: int64 on the device, zeros at first. Launches that follow one
// another may share them.
at::Tensor step_counters(at::Device device);

// Whether steps of so many rows are recorded as programs: on CUDA devices that can run the kernel, if they are
// on, in its dtypes, for at most kMostLinearRows rows. The first call for a device, dtype and number of rows compiles
// the kernel.
bool uses_step_programs(at::Device device, at::ScalarType type, int64_t rows);
// Turns programs of a type of device on or off: tests have one without a GPU.
void use_step_programs(c10::DeviceType type, bool on);

class StepProgram final : public StepRecorder {
 public:
  explicit StepProgram(at::Tensor counters) : counters_(std::move(counters)) {}

  // These take what the kernel takes: fp32, bf16 and fp16, contiguous inputs, keys and values of whole 16 bytes.
  std::optional<at::Tensor> linear_rows(const at::Tensor& x, const InputNorm& norm, const LinearWeights& layer,
                                        const LinearWeights& up, PostOp then, const at::Tensor& residual) override;
  std::optional<at::Tensor> attend(const CachedAttentionInput& input, const VisibleSlots& slots) override;
  bool write_at(const at::Tensor& key_cache, const at::Tensor& value_cache, const at::Tensor& key,
                const at::Tensor& value, const at::Tensor& row, const at::Tensor& slot) override;
  bool rotate_at(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, const at::Tensor& position,
                 int64_t head_width) override;

  // Returns what is recorded, as views of this program.
  std::vector<StepOperation> operations() const;
  // Does what was recorded, in one launch, and forgets it.
  void run();

 private:
  // Adds an operation if it is taken; else runs the earlier ones. Returns whether it is.
  bool add(bool taken, kernel::StepKind kind, std::vector<at::Tensor> written, std::vector<at::Tensor> read,
           int64_t number, double factor);

  at::Tensor counters_;
  std::vector<at::Tensor> written_;
  std::vector<at::Tensor> read_;
  std::vector<int64_t> kinds_;
  std::vector<int64_t> numbers_;
  std::vector<double> factors_;
};

}  // namespace draftsmith::model
