// Runs step programs (model/layers/step_program.h) on the host, by the kernel's source.
#pragma once

#include <span>
#include <stdexcept>

#include "model/layers/step_program_gpu.h"
#include "tests/support/cuda_shim.h"
// The shim comes first.
#include "model/layers/kernels/step_program.cu"

namespace draftsmith::model {

template <class T>
void run_program_on_host(const kernel::StepOperations& program, int64_t kernel_rows, unsigned long long* counter,
                         unsigned blocks, cuda_shim::Order order) {
  const auto run = kernel_rows == 1   ? &kernel::run_program<1, T>
                   : kernel_rows == 4 ? &kernel::run_program<4, T>
                                      : &kernel::run_program<8, T>;
  cuda_shim::run_resident_grid(
      {blocks}, {256}, [&] { run(program, counter); }, order);
}

// Does as run_steps_by_kernel() does, on tensors of the host, with `blocks` blocks.
inline void run_steps_on_host(std::span<const StepOperation> operations, const at::Tensor& counters, unsigned blocks,
                              cuda_shim::Order order = cuda_shim::Order::kForward) {
  const at::ScalarType type = operations.front().written[0].scalar_type();
  const size_t which = step_program_kernel(rows_of_steps(operations));
  auto* counter = static_cast<unsigned long long*>(counters.mutable_data_ptr()) + which;
  const auto run = type == at::kFloat  ? &run_program_on_host<float>
                   : type == at::kHalf ? &run_program_on_host<kernel::Half>
                                       : &run_program_on_host<kernel::BFloat16>;
  while (!operations.empty()) {
    const auto packed = std::make_unique<kernel::StepOperations>(packed_operations(operations));
    run(*packed, kStepProgramRows[which], counter, blocks, order);
    operations = operations.subspan(static_cast<size_t>(packed->count));
  }
}

}  // namespace draftsmith::model
