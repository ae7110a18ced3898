// Runs kernels on the host: what CUDA adds to C++, for sources that NVRTC compiles for a GPU (*.cu).
//
//   #include "tests/support/cuda_shim.h"
//   #include "base/kernels/dropout.cu"
//   cuda_shim::run_kernel(dropout_fp32, 2, {256}, Order::kForward, in, out, ...);
//
// Blocks run one after another. The threads of a block are fibers: each warp runs as far as it comes to a barrier
// before the next one does. So a kernel that lacks a barrier fails, or gives other numbers in the other order.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include <ATen/core/Tensor.h>
#include <math.h>  // also makes sqrt(float) global
#include <ucontext.h>

#include "base/cuda_runtime.h"

inline draftsmith::Dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace draftsmith::cuda_shim {

enum class Order { kForward, kBackward };

// Block whose threads run in turns.
class Block {
 public:
  Block(Dim3 size, const std::function<void()>& kernel) : size_(size), kernel_(kernel) {
    fibers_.resize(size_t{1} * size.x * size.y * size.z);
    for (Fiber& fiber : fibers_) fiber.stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
  }

  // Puts every thread of block `index` at the beginning of the kernel.
  void begin(unsigned index) {
    index_ = index;
    for (Fiber& fiber : fibers_) start(fiber);
  }

  // Runs all threads to their end. Throws std::logic_error if they wait for one another at different places.
  void run(Order order) {
    current() = this;
    blockIdx = {index_, 0, 0};
    while (true) {
      const size_t warps = (fibers_.size() + kWarp - 1) / kWarp;
      for (size_t i = 0; i < warps; ++i) run_warp(order == Order::kForward ? i : warps - 1 - i, order);
      if (count(State::kDone, 0, fibers_.size()) == fibers_.size()) return;
      if (release(State::kAtBlock, 0, fibers_.size())) continue;
      throw std::logic_error("threads of a block wait at different barriers");
    }
  }

  static Block*& current() {
    static Block* block = nullptr;
    return block;
  }

  void wait_for_block() { wait(State::kAtBlock); }

  // Returns the value of the thread of this warp whose number differs in the bits of `lanes`.
  template <class T>
  T exchange(T value, unsigned lanes) {
    static_assert(sizeof(T) <= sizeof(Fiber::slot));
    const size_t other = running_ ^ lanes;
    std::memcpy(&fibers_[running_].slot, &value, sizeof(T));
    wait(State::kAtWarp);
    T result = value;
    if (other < fibers_.size()) std::memcpy(&result, &fibers_[other].slot, sizeof(T));
    wait(State::kAtWarp);  // before it is overwritten
    return result;
  }

  // Calls `use` with the threads' data of this warp, in their order, after each has given its own.
  template <class T, class Use>
  void share(const T& own, const Use& use) {
    fibers_[running_].shared = &own;
    wait(State::kAtWarp);
    const size_t begin = running_ / kWarp * kWarp;
    use([&](size_t lane) -> const T& { return *static_cast<const T*>(fibers_.at(begin + lane).shared); });
    wait(State::kAtWarp);  // before it is gone
  }

 private:
  enum class State { kReady, kAtWarp, kAtBlock, kDone };
  struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    State state = State::kReady;
    uint64_t slot = 0;
    const void* shared = nullptr;
  };
  static constexpr size_t kStackBytes = 64 << 10, kWarp = 32;

  static void enter() {
    Block& block = *current();
    block.kernel_();
    block.wait(State::kDone);
  }

  void start(Fiber& fiber) {
    fiber.state = State::kReady;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, &Block::enter, 0);
  }

  void go_on(size_t i) {
    if (fibers_[i].state != State::kReady) return;
    running_ = i;
    const auto number = static_cast<unsigned>(i);
    threadIdx = {number % size_.x, number / size_.x % size_.y, number / size_.x / size_.y};
    swapcontext(&main_, &fibers_[i].context);
  }

  void wait(State state) {
    Fiber& fiber = fibers_[running_];
    fiber.state = state;
    swapcontext(&fiber.context, &main_);
  }

  size_t count(State state, size_t begin, size_t end) const {
    size_t found = 0;
    for (size_t i = begin; i < end; ++i) found += fibers_[i].state == state ? 1 : 0;
    return found;
  }

  // Lets threads go on that have all come to one barrier. Returns whether there are any.
  bool release(State state, size_t begin, size_t end) {
    const size_t waiting = count(state, begin, end);
    if (waiting == 0 || waiting + count(State::kDone, begin, end) != end - begin) return false;
    for (size_t i = begin; i < end; ++i) {
      if (fibers_[i].state == state) fibers_[i].state = State::kReady;
    }
    return true;
  }

  // Runs a warp as far as it comes without the others.
  void run_warp(size_t warp, Order order) {
    const size_t begin = warp * kWarp, end = std::min(begin + kWarp, fibers_.size());
    do {
      for (size_t i = begin; i < end; ++i) go_on(order == Order::kForward ? i : begin + end - 1 - i);
    } while (release(State::kAtWarp, begin, end));
  }

  Dim3 size_;
  const std::function<void()>& kernel_;
  unsigned index_ = 0;
  std::vector<Fiber> fibers_;
  ucontext_t main_{};
  size_t running_ = 0;
};

// Runs `kernel` once for each thread of a grid of `grid.x` blocks.
inline void run_grid(Dim3 grid, Dim3 block, const std::function<void()>& kernel, Order order = Order::kForward) {
  Block threads(block, kernel);
  gridDim = grid;
  blockDim = block;
  for (unsigned i = 0; i < grid.x; ++i) {
    threads.begin(order == Order::kForward ? i : grid.x - 1 - i);
    threads.run(order);
  }
}

// Returns what a kernel takes for a tensor, a pointer to its numbers or null if there is none, and for a number.
template <class T, class A>
T kernel_argument(const A& argument) {
  if constexpr (std::is_same_v<A, at::Tensor>) {
    return argument.defined() ? static_cast<T>(argument.data_ptr()) : nullptr;
  } else {
    return static_cast<T>(argument);
  }
}

// Runs a kernel with tensors and numbers in `blocks` blocks of so many threads.
template <class... Parameters, class... Arguments>
void run_kernel(void (*kernel)(Parameters...), int64_t blocks, Dim3 threads, Order order,
                const Arguments&... arguments) {
  run_grid(
      {static_cast<unsigned>(blocks)}, threads, [&] { kernel(kernel_argument<Parameters>(arguments)...); }, order);
}

}  // namespace draftsmith::cuda_shim

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)

inline void __syncthreads() {
  draftsmith::cuda_shim::Block::current()->wait_for_block();
}

template <class T>
T __shfl_xor_sync(unsigned, T value, int lanes) {
  return draftsmith::cuda_shim::Block::current()->exchange(value, static_cast<unsigned>(lanes));
}

inline unsigned __float_as_uint(float value) {
  return std::bit_cast<unsigned>(value);
}

inline float __uint_as_float(unsigned bits) {
  return std::bit_cast<float>(bits);
}

// Adds to sums [16,8] the products of a [16,16] and b [16,8] of bf16, shared by the lanes of a warp as for the
// instruction mma.m16n8k16.
inline void tensor_core_bf16(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  struct Parts {
    unsigned a[4];
    unsigned b[2];
  };
  const Parts own{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  const auto half = [](unsigned word, size_t which) {
    return __uint_as_float(which == 0 ? word << 16 : word & 0xffff0000u);
  };
  draftsmith::cuda_shim::Block::current()->share(own, [&](const auto& lanes) {
    const size_t lane = threadIdx.x % 32;
    for (size_t i = 0; i < 4; ++i) {
      const size_t row = lane / 4, column = lane % 4 * 2 + i % 2;
      for (size_t k = 0; k < 16; ++k) {
        const unsigned left = lanes(row * 4 + k % 8 / 2).a[k / 8 * 2 + i / 2];
        const unsigned right = lanes(column * 4 + k % 8 / 2).b[k / 8];
        sums[i] += half(left, k % 2) * half(right, k % 2);
      }
    }
  });
}
