// Step programs on CUDA devices (model/layers/kernels/step_program.cu).
#pragma once

#include <span>

#include "base/kernel_texts.h"
#include "model/layers/dense_attention.h"
#include "model/layers/step_operation.h"

namespace draftsmith::model {

// Dtypes that have kernels.
constexpr at::ScalarType kStepProgramTypes[] = {at::kFloat, at::kBFloat16, at::kHalf};
// Numbers of rows that kernels take at a time, ascending. Fewer rows take the next one; more are taken in turns.
constexpr int64_t kStepProgramRows[] = {1, 4, 8};

// Returns the source of the kernel of a dtype and of one of the numbers above.
KernelSource step_program_source(at::ScalarType type, int64_t kernel_rows);
// Returns the place in kStepProgramRows of the kernel for so many rows.
size_t step_program_kernel(int64_t rows);
// Returns the rows of a program's linear operations, which are those of a step's tokens; 1 if it has none.
int64_t rows_of_steps(std::span<const StepOperation> operations);
// Returns how many blocks, of 256 threads, a multiprocessor has at once.
unsigned step_program_blocks(int64_t kernel_rows);

// Whether keys and values are whole vectors of 16 bytes, as the kernel reads them.
bool keys_are_vectors(const CachedAttentionInput& input);

// Returns the first operations, as many as a launch takes, as the kernel reads them. Tensors must be as StepProgram
// takes them.
kernel::StepOperations packed_operations(std::span<const StepOperation> operations);

// Returns whether the kernel can run on a CUDA device.
bool has_step_program(at::Device device, at::ScalarType type, int64_t rows);
// Does the operations, in one launch or in several for very many. has_step_program() must hold.
void run_steps_by_kernel(std::span<const StepOperation> operations, const at::Tensor& counters);

}  // namespace draftsmith::model
