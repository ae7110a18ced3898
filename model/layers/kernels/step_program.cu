// Operations of a decoding step, one after the other in one launch, for model/layers/step_program.h. All blocks work on
// an operation, then wait for one another: a barrier takes about half the time of a further launch. Before a block
// waits, it asks for the weights that come next, so that memory is read meanwhile.
//
// The operations are those of linear_rows.cu and step.cu, with the same sums in the same order. Compiled with
// --fmad=false. Operations are parameters of the kernel: a recorded launch keeps them.
#include "base/kernels/grid_barrier.cuh"
#include "model/layers/kernels/attention.cuh"
#include "model/layers/kernels/linear_rows.cuh"
#include "model/layers/kernels/step.cuh"
#include "model/layers/kernels/step_operation.cuh"

namespace kernel {

constexpr int kGridWarps = kThreads / 32;  // of a block

// Asks for numbers to be brought to the cache that all blocks share.
template <class T>
__device__ void ask_for(const void* numbers, Int64 count) {
  if (numbers == nullptr) return;
  constexpr Int64 kLine = 128;  // bytes
  const Int64 lines = (count * static_cast<Int64>(sizeof(T)) + kLine - 1) / kLine;
  const Int64 stride = static_cast<Int64>(gridDim.x) * kThreads;
  KERNEL_UNROLL(1)
  for (Int64 line = static_cast<Int64>(blockIdx.x) * kThreads + threadIdx.x; line < lines; line += stride) {
    const char* from = static_cast<const char*>(numbers) + line * kLine;
#ifdef __CUDACC_RTC__
    asm volatile("prefetch.global.L2 [%0];" : : "l"(from));
#else
    const volatile char read = *from;
    static_cast<void>(read);
#endif
  }
}

template <class T>
__device__ void ask_for_weights(const LinearStep& step) {
  const Int64 count = static_cast<Int64>(step.outputs) * step.inputs;
  ask_for<T>(step.weight, count);
  ask_for<T>(step.up, count);
}

// Each warp takes every n-th part, and neighbours are of different blocks, so that few parts are spread over all. More
// than kRows rows are taken in turns.
template <bool kNormed, int kRows, class T>
__device__ void run_linear(const LinearStep& step) {
  const auto numbers = [](const void* pointer) { return static_cast<const T*>(pointer); };
  const Layer<T, T> layer{numbers(step.weight), numbers(step.bias), nullptr};
  const Layer<T, T> up{numbers(step.up), numbers(step.up_bias), nullptr};
  const int of_part = kOutputsOf<kRows, T> / (step.up == nullptr ? 1 : 2);
  const int parts = (step.outputs + of_part - 1) / of_part;
  const int first = static_cast<int>(threadIdx.x) / 32 * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
  KERNEL_UNROLL(1)
  for (int part = first; part < parts; part += kGridWarps * static_cast<int>(gridDim.x)) {
    KERNEL_UNROLL(1)
    for (int row = 0; row < step.rows; row += kRows) {
      const int present = step.rows - row < kRows ? step.rows - row : kRows;
      const Int64 place = static_cast<Int64>(row) * step.outputs;
      const T* residual = step.residual == nullptr ? nullptr : numbers(step.residual) + place;
      linear_rows<kNormed, kRows, T, T>({numbers(step.x) + static_cast<Int64>(row) * step.inputs, numbers(step.norm),
                                         step.epsilon, present, step.inputs},
                                        layer, up, residual, static_cast<T*>(step.y) + place, step.outputs, step.then,
                                        part);
    }
  }
}

// Keys and values are whole vectors.
template <class T>
__device__ void run_attend(const AttendStep& step) {
  __shared__ Shared<T> shared;
  const auto numbers = [](const void* pointer) { return static_cast<const T*>(pointer); };
  const Caches<T> caches{numbers(step.keys), numbers(step.values), step.row,    step.prefix, step.own,  step.position,
                         numbers(step.bias), step.columns,         step.shared, step.slots,  step.width};
  const int pairs = step.rows * step.tokens * step.heads;
  KERNEL_UNROLL(1)
  for (int i = static_cast<int>(blockIdx.x); i < pairs; i += static_cast<int>(gridDim.x)) {
    attend_pair<true>(shared, numbers(step.query), static_cast<T*>(step.context), caches, step.tokens, step.heads,
                      step.row_stride, step.token_stride, step.scale, i);
    __syncthreads();
  }
}

template <class T>
__device__ void run_write(const WriteStep& step) {
  const Int64 stride = static_cast<Int64>(gridDim.x) * kThreads;
  KERNEL_UNROLL(1)
  for (Int64 i = static_cast<Int64>(blockIdx.x) * kThreads + threadIdx.x; i < step.numbers; i += stride) {
    write_slots(static_cast<T*>(step.key_cache), static_cast<T*>(step.value_cache), static_cast<const T*>(step.key),
                static_cast<const T*>(step.value), step.row, step.slot, i, step.tokens, step.shared, step.slots,
                step.width, step.key_row, step.key_token, step.value_row, step.value_token);
  }
}

template <class T>
__device__ void run_rotate(const RotateStep& step) {
  const Int64 stride = static_cast<Int64>(gridDim.x) * kThreads;
  KERNEL_UNROLL(1)
  for (Int64 i = static_cast<Int64>(blockIdx.x) * kThreads + threadIdx.x; i < step.pairs; i += stride) {
    rotate(static_cast<T*>(step.x), static_cast<const T*>(step.cosine), static_cast<const T*>(step.sine), step.position,
           i, step.tokens, step.heads, step.width, step.half, step.row_stride, step.token_stride);
  }
}

template <int kRows, class T>
__device__ void run_program(const StepOperations& program, Arrivals* counter) {
  GridBarrier barrier(counter);
  KERNEL_UNROLL(1)
  for (int i = 0; i < program.count; ++i) {
    const StepOperation& operation = program.operations[i];
    if (operation.next_linear >= 0) ask_for_weights<T>(program.operations[operation.next_linear].linear);
    if (i > 0) barrier.wait();
    switch (operation.kind) {
      case kLinear:
        if (operation.linear.norm != nullptr) {
          run_linear<true, kRows, T>(operation.linear);
        } else {
          run_linear<false, kRows, T>(operation.linear);
        }
        break;
      case kAttend:
        run_attend<T>(operation.attend);
        break;
      case kWrite:
        run_write<T>(operation.write);
        break;
      default:
        run_rotate<T>(operation.rotate);
    }
  }
}

}  // namespace kernel

// The kernel of a type that takes so many rows at a time. Where registers suffice, a processor has two blocks at once.
#ifdef STEP_PROGRAM_SUFFIX
#define STEP_PROGRAM_KERNEL(suffix, T, rows)                                                           \
  extern "C" __global__ void __launch_bounds__(256, rows <= 4 ? 2 : 1) step_program_##suffix##_##rows( \
      const __grid_constant__ kernel::StepOperations program, unsigned long long* counter) {           \
    kernel::run_program<rows, T>(program, counter);                                                    \
  }
#define STEP_PROGRAM_NAMED_KERNEL(suffix, T, rows) STEP_PROGRAM_KERNEL(suffix, T, rows)
STEP_PROGRAM_NAMED_KERNEL(STEP_PROGRAM_SUFFIX, kernel::STEP_PROGRAM_TYPE, STEP_PROGRAM_ROWS)
#endif
