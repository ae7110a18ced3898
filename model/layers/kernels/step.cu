// Operators of a cached step, for model/layers/step_operators.h: attention over K/V caches, writes to them, rotation.
//
// Lengths and places of tokens are read on the device, so that recorded launches serve every step. What a query gets
// depends neither on the other rows nor on the number of tokens in the step: every sum has an order that the width and
// the slots seen decide. Neighbouring lanes read a key or value together, 16 bytes each.
#include "base/kernels/numbers.cuh"
#include "base/kernels/vectors.cuh"

namespace kernel {

constexpr int kThreads = 256;

// Returns the sum or the largest of the values of all threads, to each of them. Every thread calls it.
template <class T, class Join>
__device__ T joined(T value, T* by_warp, const Join& join) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value = join(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  __syncthreads();  // what was joined before has been read
  if (threadIdx.x % 32 == 0) by_warp[threadIdx.x / 32] = value;
  __syncthreads();
  value = by_warp[0];
  for (int warp = 1; warp < kThreads / 32; ++warp) value = join(value, by_warp[warp]);
  return value;
}

// A layer's caches, which the tokens of a step attend to, and their shape.
template <class T>
struct Caches {
  const T* keys;          // [R,kv,slots,width]
  const T* values;        // [R,kv,slots,width]
  const Int64* row;       // [B] rows of the caches
  const Int64* prefix;    // [B,L] the slots [0,prefix) are seen
  const Int64* own;       // [B,L] a further slot that is seen, or null
  const Int64* position;  // [B,L]
  const T* bias;          // [H,columns] by distance, the last for distance 0; or null
  int columns;
  int shared;  // kv
  int slots;
  int width;  // at most kThreads
};

// Keys or values of a head that a query sees: those of the slots [first,seen), then of slot `own`.
template <class T>
struct Slots {
  const T* rows;  // [slots,width]
  Int64 first;
  Int64 seen;
  Int64 own;
  int width;

  __device__ const T* at(int index) const { return rows + (first + index < seen ? first + index : own) * width; }
  // Returns how many vectors a row has, the last of which may be short.
  __device__ int vectors() const { return (width + Vector<T>::kCount - 1) / Vector<T>::kCount; }
};

// A vector of a row, with zeros behind its end. Where rows are no multiples of 16 bytes, numbers are loaded one by one,
// and only when they are unpacked.
template <bool kAligned, class T>
struct RowPart {
  Words words;
  const T* from;
  int left;

  __device__ void load(const T* row, int column, int width) {
    if constexpr (kAligned) {
      words = load_words(row + column);
    } else {
      from = row + column;
      left = width - column;
    }
  }
  __device__ void unpack(float* to) const {
    if constexpr (kAligned) {
      Vector<T>::unpack(words, to);
    } else {
      KERNEL_UNROLL(8)
      for (int i = 0; i < Vector<T>::kCount; ++i) to[i] = i < left ? widen(from[i]) : 0;
    }
  }
};

// What the threads of a block share.
template <class T>
struct Shared {
  float asked[kThreads];    // the query, with zeros behind its end
  float weights[kThreads];  // of a chunk's slots: q k, then exp(score - highest)
  float by_warp[kThreads / 32];
  float parts[kThreads * Vector<T>::kCount];  // sums of values
};

constexpr int kAtOnce = 4;  // rows that a thread has in flight

// Computes q k of a chunk's first `present` slots, to shared.weights. Neighbouring lanes read one key, a vector each,
// and add their products as a tree.
template <bool kAligned, class T>
__device__ void multiply_keys(Shared<T>& shared, const Slots<T>& keys, int present) {
  constexpr int kCount = Vector<T>::kCount;
  const int vectors = keys.vectors();
  int lanes = 1;  // of a key
  while (lanes < vectors && lanes < 32) lanes *= 2;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int groups = kThreads / lanes;
  for (int first = 0; first < present; first += kAtOnce * groups) {
    const auto index_of = [&](int i) { return first + i * groups + static_cast<int>(threadIdx.x) / lanes; };
    float products[kAtOnce] = {};
    for (int vector = lane; vector < vectors; vector += lanes) {
      RowPart<kAligned, T> read[kAtOnce];
      KERNEL_UNROLL(4)
      for (int i = 0; i < kAtOnce; ++i) {
        const int index = index_of(i) < present ? index_of(i) : present - 1;
        read[i].load(keys.at(index), vector * kCount, keys.width);
      }
      KERNEL_UNROLL(4)
      for (int i = 0; i < kAtOnce; ++i) {
        float numbers[kCount];
        read[i].unpack(numbers);
        KERNEL_UNROLL(8)
        for (int j = 0; j < kCount; ++j) {
          products[i] = multiply_add(shared.asked[vector * kCount + j], numbers[j], products[i]);
        }
      }
    }
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
      KERNEL_UNROLL(4)
      for (int i = 0; i < kAtOnce; ++i) products[i] += __shfl_xor_sync(0xffffffffu, products[i], distance);
    }
    KERNEL_UNROLL(4)
    for (int i = 0; i < kAtOnce; ++i) {
      if (lane == 0 && index_of(i) < present) shared.weights[index_of(i)] = products[i];
    }
  }
}

// Adds this thread's share of the weighted values of a chunk's first `present` slots: one vector of every n-th value.
template <bool kAligned, class T>
__device__ void add_values(const Shared<T>& shared, const Slots<T>& values, int present, float* sums) {
  constexpr int kCount = Vector<T>::kCount;
  const int vectors = values.vectors();
  const int groups = kThreads / vectors;
  const int group = static_cast<int>(threadIdx.x) / vectors;
  const int column = static_cast<int>(threadIdx.x) % vectors * kCount;
  if (group >= groups) return;
  for (int first = group; first < present; first += kAtOnce * groups) {
    RowPart<kAligned, T> read[kAtOnce];
    KERNEL_UNROLL(4)
    for (int i = 0; i < kAtOnce; ++i) {
      const int index = first + i * groups;
      read[i].load(values.at(index < present ? index : present - 1), column, values.width);
    }
    KERNEL_UNROLL(4)
    for (int i = 0; i < kAtOnce; ++i) {
      const int index = first + i * groups;
      if (index >= present) continue;
      float numbers[kCount];
      read[i].unpack(numbers);
      KERNEL_UNROLL(8)
      for (int j = 0; j < kCount; ++j) sums[j] = multiply_add(shared.weights[index], numbers[j], sums[j]);
    }
  }
}

// Returns the sum over a column of the values, of which each group of threads has a share.
template <class T>
__device__ float column_sum(const Shared<T>& shared, int vectors, int column) {
  const int groups = kThreads / vectors;
  const int stride = vectors * Vector<T>::kCount;
  float sum = shared.parts[column];
  KERNEL_UNROLL(4)
  for (int group = 1; group < groups; ++group) sum += shared.parts[group * stride + column];
  return sum;
}

// Computes the context of one head of one token a block: softmax(scale q k^T + bias) v over the slots it sees, or zeros
// if it sees none. Slots are taken in chunks of one a thread.
template <bool kAligned, class T>  // kAligned: keys and values are whole vectors
__device__ void attend_head(Shared<T>& shared, const T* query, T* context, const Caches<T>& caches, int head, int heads,
                            Int64 place, Int64 b, double scale) {
  constexpr int kCount = Vector<T>::kCount;
  const int thread = static_cast<int>(threadIdx.x);
  const int width = caches.width;
  const Int64 own = caches.own == nullptr ? -1 : caches.own[place];
  const Int64 seen = caches.prefix[place];
  const Int64 count = seen + (own < 0 ? 0 : 1);
  const Int64 first_slot = (caches.row[b] * caches.shared + head / (heads / caches.shared)) * caches.slots;
  Slots<T> keys{caches.keys + first_slot * width, 0, seen, own, width};
  Slots<T> values{caches.values + first_slot * width, 0, seen, own, width};
  shared.asked[thread] = thread < width ? widen(query[thread]) : 0;
  __syncthreads();

  const auto larger = [](float a, float c) { return a > c ? a : c; };
  const auto plus = [](float a, float c) { return a + c; };
  float highest = -infinity();
  float total = 0;
  float sums[kCount] = {};
  for (Int64 first = 0; first < count; first += kThreads) {
    const int present = static_cast<int>(count - first < kThreads ? count - first : kThreads);
    keys.first = values.first = first;
    multiply_keys<kAligned>(shared, keys, present);
    __syncthreads();
    float score = -infinity();
    if (thread < present) {
      score = shared.weights[thread] * static_cast<float>(scale);
      if (caches.bias != nullptr) {
        const Int64 distance = first + thread < seen ? caches.position[place] - first - thread : 0;
        Int64 bucket = caches.columns - 1 - distance;
        bucket = bucket < 0 ? 0 : bucket >= caches.columns ? caches.columns - 1 : bucket;
        score += widen(caches.bias[static_cast<Int64>(head) * caches.columns + bucket]);
      }
    }
    const float before = highest;
    highest = larger(highest, joined(score, shared.by_warp, larger));
    const float shrink = first == 0 ? 0.0f : exp(before - highest);
    const float weight = thread < present ? exp(score - highest) : 0.0f;
    shared.weights[thread] = weight;
    total = total * shrink + joined(weight, shared.by_warp, plus);  // its barriers also show the weights to all
    KERNEL_UNROLL(8)
    for (int i = 0; i < kCount; ++i) sums[i] *= shrink;
    add_values<kAligned>(shared, values, present, sums);
    __syncthreads();  // the weights have been read
  }
  KERNEL_UNROLL(8)
  for (int i = 0; i < kCount; ++i) shared.parts[thread * kCount + i] = sums[i];
  __syncthreads();
  if (thread >= width) return;
  const float sum = column_sum<T>(shared, values.vectors(), thread);
  context[(place * heads + head) * width + thread] = Rounding<T>::of(count > 0 ? sum / total : 0.0f);
}

// Computes one pair a block of the tokens [B,L] and the heads, heads first.
template <class T>
__device__ void attend(const T* query, T* context, const Caches<T>& caches, int tokens, int heads, Int64 row_stride,
                       Int64 token_stride, double scale) {
  __shared__ Shared<T> shared;
  const Int64 index = blockIdx.x;
  const int head = static_cast<int>(index % heads);
  const Int64 place = index / heads;  // of the token: b * L + j
  const Int64 b = place / tokens;
  query += b * row_stride + place % tokens * token_stride + head * caches.width;
  if (caches.width % Vector<T>::kCount == 0 && is_aligned(caches.keys) && is_aligned(caches.values)) {
    attend_head<true>(shared, query, context, caches, head, heads, place, b, scale);
  } else {
    attend_head<false>(shared, query, context, caches, head, heads, place, b, scale);
  }
}

// Writes number `index` of keys and values [B,L,kv*width], rows and tokens strided, to slot[b,j] of row[b].
template <class T>
__device__ void write_slots(T* key_cache, T* value_cache, const T* key, const T* value, const Int64* row,
                            const Int64* slot, Int64 index, int tokens, int shared, int slots, int width, Int64 key_row,
                            Int64 key_token, Int64 value_row, Int64 value_token) {
  const Int64 inner = static_cast<Int64>(shared) * width;
  const Int64 place = index / inner;
  const Int64 i = index % inner;
  const Int64 b = place / tokens;
  const Int64 j = place % tokens;
  const Int64 to = ((row[b] * shared + i / width) * slots + slot[place]) * width + i % width;
  key_cache[to] = key[b * key_row + j * key_token + i];
  value_cache[to] = value[b * value_row + j * value_token + i];
}

template <class T>
__device__ float rounded(float value) {
  return widen(Rounding<T>::of(value));
}

// Rotates pair `index` of heads of x [B,L,h*width], rows and tokens strided, in place by the table's rows. Products and
// sums are rounded to T, as tensor operations do.
template <class T>
__device__ void rotate(T* x, const T* cosine, const T* sine, const Int64* position, Int64 index, int tokens, int heads,
                       int width, int half, Int64 row_stride, Int64 token_stride) {
  const int i = static_cast<int>(index % half);
  const int head = static_cast<int>(index / half % heads);
  const Int64 place = index / half / heads;
  const Int64 angle = position[place] * half + i;
  T* pair = x + place / tokens * row_stride + place % tokens * token_stride + head * width + i;
  const auto first = widen(pair[0]);
  const auto second = widen(pair[half]);
  const auto c = widen(cosine[angle]);
  const auto s = widen(sine[angle]);
  pair[0] = Rounding<T>::of(rounded<T>(first * c) - rounded<T>(second * s));
  pair[half] = Rounding<T>::of(rounded<T>(second * c) + rounded<T>(first * s));
}

}  // namespace kernel

#define STEP_KERNELS(suffix, T)                                                                                        \
  extern "C" __global__ void __launch_bounds__(256, 2) attend_##suffix(                                                \
      const T* query, T* context, const T* keys, const T* values, const long long* row, const long long* prefix,       \
      const long long* own, const long long* position, const T* bias, int columns, int tokens, int heads, int shared,  \
      int slots, int width, long long row_stride, long long token_stride, double scale) {                              \
    kernel::wait_for_inputs();                                                                                         \
    kernel::attend<T>(query, context, {keys, values, row, prefix, own, position, bias, columns, shared, slots, width}, \
                      tokens, heads, row_stride, token_stride, scale);                                                 \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(256)                                                                    \
      write_slots_##suffix(T* key_cache, T* value_cache, const T* key, const T* value, const long long* row,           \
                           const long long* slot, long long numbers, int tokens, int shared, int slots, int width,     \
                           long long key_row, long long key_token, long long value_row, long long value_token) {       \
    kernel::wait_for_inputs();                                                                                         \
    const long long index = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;                             \
    if (index >= numbers) return;                                                                                      \
    kernel::write_slots<T>(key_cache, value_cache, key, value, row, slot, index, tokens, shared, slots, width,         \
                           key_row, key_token, value_row, value_token);                                                \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(256)                                                                    \
      rotate_##suffix(T* x, const T* cosine, const T* sine, const long long* position, long long pairs, int tokens,    \
                      int heads, int width, int half, long long row_stride, long long token_stride) {                  \
    kernel::wait_for_inputs();                                                                                         \
    const long long index = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;                             \
    if (index >= pairs) return;                                                                                        \
    kernel::rotate<T>(x, cosine, sine, position, index, tokens, heads, width, half, row_stride, token_stride);         \
  }

// NVRTC compiles the kernels of one type at a time.
#ifdef STEP_SUFFIX
#define STEP_KERNELS_OF(suffix, T) STEP_KERNELS(suffix, T)
STEP_KERNELS_OF(STEP_SUFFIX, kernel::STEP_TYPE)
#else
STEP_KERNELS(fp32, float)
STEP_KERNELS(bf16, kernel::BFloat16)
STEP_KERNELS(fp16, kernel::Half)
#endif
