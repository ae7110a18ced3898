// Sums and largest values over the threads of a block, in a fixed order.
#pragma once

namespace kernel {

// Returns the sum of the values of all threads, to each of them. The block has whole warps; every thread calls it.
template <class T>
__device__ T block_sum(T value) {
  __shared__ T sums[32];
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  const int warps = static_cast<int>(blockDim.x) / 32;
  if (warps == 1) return value;
  __syncthreads();  // the sums of the call before have been read
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  T sum = 0;
  for (int warp = 0; warp < warps; ++warp) sum += sums[warp];
  return sum;
}

// Returns the largest value of all threads, to each of them. The block has whole warps; every thread calls it.
template <class T>
__device__ T block_largest(T value) {
  __shared__ T largest[32];
  for (int distance = 16; distance > 0; distance /= 2) {
    const T other = __shfl_xor_sync(0xffffffffu, value, distance);
    value = other > value ? other : value;
  }
  __syncthreads();  // the values of the call before have been read
  if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = value;
  __syncthreads();
  for (unsigned int warp = 0; warp < blockDim.x / 32; ++warp) value = largest[warp] > value ? largest[warp] : value;
  return value;
}

}  // namespace kernel
