#include "model/layers/step_program_gpu.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <mutex>
#include <stdexcept>

#include <fmt/format.h>

#include "base/device.h"
#include "base/device_kernels.h"
#include "model/kernel_texts.h"

namespace draftsmith::model {
namespace {

constexpr unsigned kThreadsOfBlock = 256;
constexpr int64_t kVectorBytes = 16;

// Returns the kernels of a dtype and place in kStepProgramRows, which are compiled when they are first needed; nullptr
// for other dtypes.
DeviceKernels* program_kernels(at::ScalarType type, size_t which) {
  using OfType = std::array<std::unique_ptr<DeviceKernels>, std::size(kStepProgramRows)>;
  static std::array<OfType, std::size(kStepProgramTypes)> all;
  static std::once_flag made;
  std::call_once(made, [] {
    for (size_t i = 0; i < all.size(); ++i) {
      for (size_t j = 0; j < all[i].size(); ++j) {
        all[i][j] = std::make_unique<DeviceKernels>(step_program_source(kStepProgramTypes[i], kStepProgramRows[j]));
      }
    }
  });
  const auto found = std::ranges::find(kStepProgramTypes, type);
  return found == std::end(kStepProgramTypes) ? nullptr
                                              : all[static_cast<size_t>(found - kStepProgramTypes)][which].get();
}

const void* find_program(DeviceKernels& kernels, at::Device device, at::ScalarType type, size_t which) {
  return kernels.find(device, fmt::format("step_program_{}_{}", dtype_name(type), kStepProgramRows[which]));
}

const void* address(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

const long long* indices(const at::Tensor& tensor) {
  return static_cast<const long long*>(address(tensor));
}

int as_int(int64_t value) {
  return static_cast<int>(value);
}

kernel::LinearStep packed_linear(const StepOperation& operation) {
  const at::TensorList in = operation.read;
  const int64_t inputs = in[0].size(-1);
  return {address(in[0]),
          address(in[1]),
          address(in[2]),
          address(in[3]),
          address(in[4]),
          address(in[5]),
          address(in[6]),
          operation.written[0].mutable_data_ptr(),
          static_cast<float>(operation.factor),
          as_int(in[0].numel() / inputs),
          as_int(inputs),
          as_int(in[2].size(0)),
          as_int(operation.number)};
}

kernel::AttendStep packed_attend(const StepOperation& operation) {
  const at::TensorList in = operation.read;
  const at::Tensor& query = in[0];
  const at::Tensor& keys = in[1];
  return {query.const_data_ptr(),
          operation.written[0].mutable_data_ptr(),
          keys.const_data_ptr(),
          in[2].const_data_ptr(),
          indices(in[3]),
          indices(in[4]),
          indices(in[5]),
          indices(in[6]),
          address(in[7]),
          operation.factor,
          query.stride(0),
          query.stride(1),
          as_int(query.size(0)),
          as_int(query.size(1)),
          as_int(query.size(2) / keys.size(3)),
          in[7].defined() ? as_int(in[7].size(1)) : 0,
          as_int(keys.size(1)),
          as_int(keys.size(2)),
          as_int(keys.size(3))};
}

kernel::WriteStep packed_write(const StepOperation& operation) {
  const at::Tensor& cache = operation.written[0];
  const at::Tensor& key = operation.read[0];
  const at::Tensor& value = operation.read[1];
  return {operation.written[0].mutable_data_ptr(),
          operation.written[1].mutable_data_ptr(),
          key.const_data_ptr(),
          value.const_data_ptr(),
          indices(operation.read[2]),
          indices(operation.read[3]),
          key.numel(),
          key.stride(0),
          key.stride(1),
          value.stride(0),
          value.stride(1),
          as_int(key.size(1)),
          as_int(cache.size(1)),
          as_int(cache.size(2)),
          as_int(cache.size(3))};
}

kernel::RotateStep packed_rotate(const StepOperation& operation) {
  const at::Tensor& x = operation.written[0];
  const at::TensorList in = operation.read;
  const int64_t heads = x.size(2) / operation.number;
  const int64_t half = in[0].size(1);
  return {x.mutable_data_ptr(),
          in[0].const_data_ptr(),
          in[1].const_data_ptr(),
          indices(in[2]),
          in[2].numel() * heads * half,
          x.stride(0),
          x.stride(1),
          as_int(x.size(1)),
          as_int(heads),
          as_int(operation.number),
          as_int(half)};
}

kernel::StepOperation packed_operation(const StepOperation& operation) {
  kernel::StepOperation packed{operation.kind, -1, {}};
  switch (operation.kind) {
    case kernel::kLinear:
      packed.linear = packed_linear(operation);
      break;
    case kernel::kAttend:
      packed.attend = packed_attend(operation);
      break;
    case kernel::kWrite:
      packed.write = packed_write(operation);
      break;
    case kernel::kRotate:
      packed.rotate = packed_rotate(operation);
  }
  return packed;
}

}  // namespace

KernelSource step_program_source(at::ScalarType type, int64_t kernel_rows) {
  const char* name = type == at::kFloat ? "Float" : type == at::kHalf ? "Half" : "BFloat16";
  return kernel_source(
      model_kernel_texts(), "model/layers/kernels/step_program.cu",
      {"--fmad=false", "-DSTEP_PROGRAM_SUFFIX=" + dtype_name(type), std::string("-DSTEP_PROGRAM_TYPE=") + name,
       fmt::format("-DSTEP_PROGRAM_ROWS={}", kernel_rows)});
}

size_t step_program_kernel(int64_t rows) {
  size_t which = 0;
  while (which + 1 < std::size(kStepProgramRows) && kStepProgramRows[which] < rows) ++which;
  return which;
}

unsigned step_program_blocks(int64_t kernel_rows) {
  return kernel_rows <= 4 ? 2 : 1;
}

bool keys_are_vectors(const CachedAttentionInput& input) {
  const auto is_whole = [](const at::Tensor& slots) {
    return slots.size(3) * static_cast<int64_t>(slots.element_size()) % kVectorBytes == 0 &&
           reinterpret_cast<uintptr_t>(slots.const_data_ptr()) % kVectorBytes == 0;
  };
  return is_whole(input.keys) && is_whole(input.values);
}

int64_t rows_of_steps(std::span<const StepOperation> operations) {
  for (const StepOperation& operation : operations) {
    if (operation.kind == kernel::kLinear) return operation.read[0].numel() / operation.read[0].size(-1);
  }
  return 1;
}

kernel::StepOperations packed_operations(std::span<const StepOperation> operations) {
  kernel::StepOperations packed{};
  packed.count = std::min(as_int(std::ssize(operations)), kernel::kMostStepOperations);
  int next = -1;
  for (int i = packed.count - 1; i >= 0; --i) {
    packed.operations[i] = packed_operation(operations[static_cast<size_t>(i)]);
    // Each linear operation asks for the weights of the next one, and the first operation for those of the first.
    const bool asks = i == 0 || packed.operations[i].kind == kernel::kLinear;
    packed.operations[i].next_linear = asks ? next : -1;
    if (packed.operations[i].kind == kernel::kLinear) next = i;
  }
  return packed;
}

bool has_step_program(at::Device device, at::ScalarType type, int64_t rows) {
  const size_t which = step_program_kernel(rows);
  DeviceKernels* kernels = program_kernels(type, which);
  return kernels != nullptr && find_program(*kernels, device, type, which) != nullptr &&
         kernels->processors(device) > 0;
}

void run_steps_by_kernel(std::span<const StepOperation> operations, const at::Tensor& counters) {
  const at::Device device = counters.device();
  const at::ScalarType type = operations.front().written[0].scalar_type();
  const size_t which = step_program_kernel(rows_of_steps(operations));
  DeviceKernels* kernels = program_kernels(type, which);
  const void* kernel = kernels == nullptr ? nullptr : find_program(*kernels, device, type, which);
  if (kernel == nullptr) throw std::logic_error("a step program was recorded where its kernel cannot run");
  const unsigned blocks = kernels->processors(device) * step_program_blocks(kStepProgramRows[which]);
  auto* counter = static_cast<unsigned long long*>(counters.mutable_data_ptr()) + which;
  while (!operations.empty()) {
    const kernel::StepOperations packed = packed_operations(operations);
    kernels->launch_together(kernel, device, {blocks}, {kThreadsOfBlock}, packed, counter);
    operations = operations.subspan(static_cast<size_t>(packed.count));
  }
}

}  // namespace draftsmith::model
