// A barrier of all blocks of a grid, which must all be on the device at once: a cooperative launch sees to that.
//
// A counter in device memory counts arrivals and never goes back. Whoever passes has seen all blocks arrive, so between
// launches the counter is a multiple of the number of blocks: nobody resets it, and a launch can be replayed. All
// launches with one counter have the same number of blocks, and follow one another.
#pragma once

namespace kernel {

using Arrivals = unsigned long long;

// Adds 1 after all that the thread wrote or saw written. Returns the number before.
__device__ inline Arrivals arrive(Arrivals* counter) {
#ifdef __CUDACC_RTC__
  Arrivals before;
  asm volatile("atom.add.release.gpu.u64 %0, [%1], 1;" : "=l"(before) : "l"(counter) : "memory");
  return before;
#else
  return (*counter)++;
#endif
}

// Returns the counter. What arrivals came after is visible afterwards.
__device__ inline Arrivals arrivals(const Arrivals* counter) {
#ifdef __CUDACC_RTC__
  Arrivals now;
  asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(now) : "l"(counter) : "memory");
  return now;
#else
  run_other_blocks();  // tests/support/cuda_shim.h
  return *counter;
#endif
}

class GridBarrier {
 public:
  __device__ explicit GridBarrier(Arrivals* counter) : counter_(counter) {}

  // Waits for all blocks. What any thread of the grid wrote before is visible to all afterwards. Every thread calls it.
  __device__ void wait() {
    __syncthreads();
    if (threadIdx.x == 0) {
      const Arrivals before = arrive(counter_);
      if (passed_ == kNever) passed_ = before / gridDim.x * gridDim.x;
      passed_ += gridDim.x;
      while (arrivals(counter_) < passed_) {
      }
    }
    __syncthreads();
  }

 private:
  static constexpr Arrivals kNever = ~0ull;

  Arrivals* counter_;
  Arrivals passed_ = kNever;  // the counter when all have passed the latest barrier; of thread 0
};

}  // namespace kernel
