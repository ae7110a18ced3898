#include "model/layers/step_program.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "model/layers/linear_rows.h"
#include "model/layers/linear_rows_gpu.h"
#include "model/layers/step_gpu.h"
#include "model/layers/step_operators.h"
#include "model/layers/step_program_gpu.h"

namespace draftsmith::model {
namespace {

// By type of device.
class Switches {
 public:
  Switches() {
    const char* wanted = std::getenv("DRAFTSMITH_STEP_PROGRAMS");
    of(c10::DeviceType::CUDA) = wanted != nullptr && std::string_view(wanted) == "on";
  }
  std::atomic<bool>& of(c10::DeviceType type) { return on_.at(static_cast<size_t>(type)); }

  // Returns those of the process.
  static Switches& instance() {
    static Switches all;
    return all;
  }

 private:
  std::array<std::atomic<bool>, c10::COMPILE_TIME_MAX_DEVICE_TYPES> on_{};
};

bool in_order(const at::Tensor& tensor) {
  return !tensor.defined() || tensor.is_contiguous();
}

// Does an operation by the operator that was recorded.
void do_operation(const StepOperation& operation) {
  const at::TensorList in = operation.read;
  const at::TensorList out = operation.written;
  switch (operation.kind) {
    case kernel::kLinear: {
      const InputNorm norm{in[1], operation.factor};
      const LinearWeights layer{in[2], in[3], {}};
      const auto then = static_cast<PostOp>(operation.number);
      out[0].copy_(in[4].defined() ? gated_rows(in[0], norm, layer, {in[4], in[5], {}}, then)
                                   : linear_rows(in[0], norm, layer, then, in[6]));
      return;
    }
    case kernel::kAttend:
      out[0].copy_(attend({in[0], in[1], in[2], in[7], operation.factor}, {in[3], in[4], in[5], in[6]}, in[1].size(2)));
      return;
    case kernel::kWrite:
      write_at(out[0], out[1], in[0], in[1], in[2], in[3]);
      return;
    case kernel::kRotate:
      rotate_at(out[0], in[0], in[1], in[2], operation.number);
  }
}

void run_by_operators(at::TensorList written, at::TensorList read, at::IntArrayRef kinds, at::IntArrayRef numbers,
                      at::ArrayRef<double> factors, const at::Tensor& /*counters*/) {
  for (const StepOperation& operation : step_operations(written, read, kinds, numbers, factors)) {
    do_operation(operation);
  }
}

void run_on_gpu(at::TensorList written, at::TensorList read, at::IntArrayRef kinds, at::IntArrayRef numbers,
                at::ArrayRef<double> factors, const at::Tensor& counters) {
  run_steps_by_kernel(step_operations(written, read, kinds, numbers, factors), counters);
}

TORCH_LIBRARY_FRAGMENT(draftsmith, library) {
  library.def(
      "run_steps(Tensor(a!)[] written, Tensor[] read, int[] kinds, int[] numbers, float[] factors, "
      "Tensor(b!) counters) -> ()");
}

TORCH_LIBRARY_IMPL(draftsmith, CPU, library) {
  library.impl("run_steps", &run_by_operators);
}

TORCH_LIBRARY_IMPL(draftsmith, CUDA, library) {
  library.impl("run_steps", &run_on_gpu);
}

}  // namespace

at::Tensor step_counters(at::Device device) {
  return at::zeros({std::ssize(kStepProgramRows)}, at::TensorOptions(at::kLong).device(device));
}

bool uses_step_programs(at::Device device, at::ScalarType type, int64_t rows) {
  if (!Switches::instance().of(device.type()) || rows > kMostLinearRows) return false;
  return !device.is_cuda() || has_step_program(device, type, rows);
}

void use_step_programs(c10::DeviceType type, bool on) {
  Switches::instance().of(type) = on;
}

bool StepProgram::add(bool taken, kernel::StepKind kind, std::vector<at::Tensor> written, std::vector<at::Tensor> read,
                      int64_t number, double factor) {
  const at::ScalarType type = written.front().scalar_type();
  if (!taken || (type != at::kFloat && type != at::kBFloat16 && type != at::kHalf)) {
    run();
    return false;
  }
  written_.insert(written_.end(), written.begin(), written.end());
  read_.insert(read_.end(), read.begin(), read.end());
  kinds_.push_back(static_cast<int64_t>(kind));
  numbers_.push_back(number);
  factors_.push_back(factor);
  return true;
}

std::optional<at::Tensor> StepProgram::linear_rows(const at::Tensor& x, const InputNorm& norm,
                                                   const LinearWeights& layer, const LinearWeights& up, PostOp then,
                                                   const at::Tensor& residual) {
  const bool taken = x.is_contiguous() && in_order(residual) && !layer.scale.defined() &&
                     linear_rows_takes(x, norm, layer, up, residual);
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = layer.weight.size(0);
  const at::Tensor y = at::empty(shape, x.options());
  const bool added =
      add(taken, kernel::kLinear, {y}, {x, norm.weight, layer.weight, layer.bias, up.weight, up.bias, residual},
          static_cast<int64_t>(then), norm.epsilon);
  return added ? std::optional(y) : std::nullopt;
}

std::optional<at::Tensor> StepProgram::attend(const CachedAttentionInput& input, const VisibleSlots& slots) {
  const bool taken = attend_takes(input) && keys_are_vectors(input) && slots.row.is_contiguous() &&
                     slots.prefix.is_contiguous() && slots.position.is_contiguous() && in_order(slots.own) &&
                     in_order(input.bias_table);
  const at::Tensor context = at::empty(input.query.sizes(), input.query.options());
  const bool added =
      add(taken, kernel::kAttend, {context},
          {input.query, input.keys, input.values, slots.row, slots.prefix, slots.own, slots.position, input.bias_table},
          0, input.scale);
  return added ? std::optional(context) : std::nullopt;
}

bool StepProgram::write_at(const at::Tensor& key_cache, const at::Tensor& value_cache, const at::Tensor& key,
                           const at::Tensor& value, const at::Tensor& row, const at::Tensor& slot) {
  const bool taken = row.is_contiguous() && write_takes(key_cache, value_cache, key, value, slot);
  return add(taken, kernel::kWrite, {key_cache, value_cache}, {key, value, row, slot}, 0, 0);
}

bool StepProgram::rotate_at(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine,
                            const at::Tensor& position, int64_t head_width) {
  return add(rotate_takes(x, cosine, sine, position), kernel::kRotate, {x}, {cosine, sine, position}, head_width, 0);
}

std::vector<StepOperation> StepProgram::operations() const {
  return step_operations(written_, read_, kinds_, numbers_, factors_);
}

void StepProgram::run() {
  if (kinds_.empty()) return;
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("draftsmith::run_steps", "").typed<decltype(run_by_operators)>();
  const StepRecording none(nullptr);  // the operators of a CPU would be recorded again
  const auto written = std::exchange(written_, {});
  const auto read = std::exchange(read_, {});
  op.call(written, read, std::exchange(kinds_, {}), std::exchange(numbers_, {}), std::exchange(factors_, {}),
          counters_);
}

}  // namespace draftsmith::model
