// Dropout in one launch, for base/random_tensors.h. Each thread draws one Philox block (base/random.h), which decides
// eight elements, laid out as base/random_tensors.h says. The mask is the CPU's to the bit.
//
// Compiled with --fmad=false. Block: 256 threads; grid: as many blocks as all groups of 16 threads need.
#include "base/kernels/numbers.cuh"

namespace kernel {

constexpr int kLanes = 16;
constexpr int kWordsOfGroup = 4 * kLanes;

// Random words of one Philox block.
struct Draw {
  Word words[4];
};

__device__ inline Word high_word(unsigned long long product) {
  return static_cast<Word>(product >> 32);
}

__device__ inline Draw draw_block(Word counter, unsigned long long seed, unsigned long long step, Word site) {
  Word a = counter, b = site, c = static_cast<Word>(step), d = high_word(step);
  Word key0 = static_cast<Word>(seed), key1 = high_word(seed);
  KERNEL_UNROLL(10)
  for (int round = 0; round < 10; ++round) {
    const unsigned long long product0 = 0xd2511f53ull * a;
    const unsigned long long product1 = 0xcd9e8d57ull * c;
    a = high_word(product1) ^ b ^ key0;
    c = high_word(product0) ^ d ^ key1;
    b = static_cast<Word>(product1);
    d = static_cast<Word>(product0);
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  return {{a, b, c, d}};
}

// Writes out[i] = in[i] * scale, or 0 where the element's 16 bits are below the threshold.
template <class T>
__device__ void drop(const T* in, T* out, Int64 elements, Word threshold, double scale, unsigned long long seed,
                     unsigned long long step, Word site) {
  const Int64 block = static_cast<Int64>(blockIdx.x) * blockDim.x + threadIdx.x;
  const Int64 first = block / kLanes * (2 * kWordsOfGroup) + block % kLanes;
  T values[8] = {};  // all are on their way while the bits are drawn
  KERNEL_UNROLL(8)
  for (int part = 0; part < 8; ++part) {
    if (first + part * kLanes < elements) values[part] = in[first + part * kLanes];
  }
  const Draw draw = draw_block(static_cast<Word>(block), seed, step, site);
  const auto factor = static_cast<float>(scale);
  KERNEL_UNROLL(8)
  for (int part = 0; part < 8; ++part) {
    const Word word = draw.words[part % 4];
    const Word bits = part < 4 ? word & 0xffffu : word >> 16;
    const T value = Rounding<T>::of(bits < threshold ? 0.0f : widen(values[part]) * factor);
    if (first + part * kLanes < elements) out[first + part * kLanes] = value;
  }
}

}  // namespace kernel

#define DROPOUT_KERNEL(name, T)                                                                                     \
  extern "C" __global__ void __launch_bounds__(256)                                                                 \
      name(const T* __restrict__ in, T* __restrict__ out, long long elements, unsigned int threshold, double scale, \
           unsigned long long seed, unsigned long long step, unsigned int site) {                                   \
    kernel::drop(in, out, elements, threshold, scale, seed, step, site);                                            \
  }

DROPOUT_KERNEL(dropout_fp32, float)
DROPOUT_KERNEL(dropout_bf16, kernel::BFloat16)
DROPOUT_KERNEL(dropout_fp16, kernel::Half)
