// Attention of a decoding step over K/V caches, for step.cu and step_program.cu.
//
// Neighbouring lanes read a key or value together, 16 bytes each. Every sum has an order that the width and the slots
// seen decide: what a query gets depends neither on other rows nor on the number of tokens in the step.
#pragma once

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
  __device__ void unpack(typename Wide<T>::Type* to) const {
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
  using Sum = typename Wide<T>::Type;
  Sum asked[kThreads];    // the query, with zeros behind its end
  Sum weights[kThreads];  // of a chunk's slots: q k, then exp(score - highest)
  Sum by_warp[kThreads / 32];
  Sum parts[kThreads * Vector<T>::kCount];  // sums of values
};

constexpr int kAtOnce = 4;  // rows that a thread has in flight

// Computes q k of a chunk's first `present` slots, to shared.weights. Neighbouring lanes read one key, a vector each,
// and add their products as a tree.
template <bool kAligned, class T>
__device__ void multiply_keys(Shared<T>& shared, const Slots<T>& keys, int present) {
  using Sum = typename Wide<T>::Type;
  constexpr int kCount = Vector<T>::kCount;
  const int vectors = keys.vectors();
  int lanes = 1;  // of a key
  while (lanes < vectors && lanes < 32) lanes *= 2;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int groups = kThreads / lanes;
  for (int first = 0; first < present; first += kAtOnce * groups) {
    const auto index_of = [&](int i) { return first + i * groups + static_cast<int>(threadIdx.x) / lanes; };
    Sum products[kAtOnce] = {};
    for (int vector = lane; vector < vectors; vector += lanes) {
      RowPart<kAligned, T> read[kAtOnce];
      KERNEL_UNROLL(4)
      for (int i = 0; i < kAtOnce; ++i) {
        const int index = index_of(i) < present ? index_of(i) : present - 1;
        read[i].load(keys.at(index), vector * kCount, keys.width);
      }
      KERNEL_UNROLL(4)
      for (int i = 0; i < kAtOnce; ++i) {
        Sum numbers[kCount];
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
__device__ void add_values(const Shared<T>& shared, const Slots<T>& values, int present, typename Wide<T>::Type* sums) {
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
      typename Wide<T>::Type numbers[kCount];
      read[i].unpack(numbers);
      KERNEL_UNROLL(8)
      for (int j = 0; j < kCount; ++j) sums[j] = multiply_add(shared.weights[index], numbers[j], sums[j]);
    }
  }
}

// Returns the sum over a column of the values, of which each group of threads has a share.
template <class T>
__device__ typename Wide<T>::Type column_sum(const Shared<T>& shared, int vectors, int column) {
  const int groups = kThreads / vectors;
  const int stride = vectors * Vector<T>::kCount;
  typename Wide<T>::Type sum = shared.parts[column];
  KERNEL_UNROLL(4)
  for (int group = 1; group < groups; ++group) sum += shared.parts[group * stride + column];
  return sum;
}

// Computes the context of one head of one token a block: softmax(scale q k^T + bias) v over the slots it sees, or zeros
// if it sees none. Slots are taken in chunks of one a thread.
template <bool kAligned, class T>
__device__ void attend_head(Shared<T>& shared, const T* query, T* context, const Caches<T>& caches, int head, int heads,
                            Int64 place, Int64 b, double scale) {
  using Sum = typename Wide<T>::Type;
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

  const auto larger = [](Sum a, Sum c) { return a > c ? a : c; };
  const auto plus = [](Sum a, Sum c) { return a + c; };
  Sum highest = -infinite<Sum>();
  Sum total = 0;
  Sum sums[kCount] = {};
  for (Int64 first = 0; first < count; first += kThreads) {
    const int present = static_cast<int>(count - first < kThreads ? count - first : kThreads);
    keys.first = values.first = first;
    multiply_keys<kAligned>(shared, keys, present);
    __syncthreads();
    Sum score = -infinite<Sum>();
    if (thread < present) {
      score = shared.weights[thread] * static_cast<Sum>(scale);
      if (caches.bias != nullptr) {
        const Int64 distance = first + thread < seen ? caches.position[place] - first - thread : 0;
        Int64 bucket = caches.columns - 1 - distance;
        bucket = bucket < 0 ? 0 : bucket >= caches.columns ? caches.columns - 1 : bucket;
        score += widen(caches.bias[static_cast<Int64>(head) * caches.columns + bucket]);
      }
    }
    const Sum before = highest;
    highest = larger(highest, joined(score, shared.by_warp, larger));
    const Sum shrink = first == 0 ? Sum(0) : exp(before - highest);
    const Sum weight = thread < present ? exp(score - highest) : Sum(0);
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
  const Sum sum = column_sum<T>(shared, values.vectors(), thread);
  context[(place * heads + head) * width + thread] = Rounding<T>::of(count > 0 ? sum / total : Sum(0));
}

// Computes attend_head() of pair `index` of the tokens [B,L] and the heads, heads first. kAligned: keys and values are
// whole vectors.
template <bool kAligned, class T>
__device__ void attend_pair(Shared<T>& shared, const T* query, T* context, const Caches<T>& caches, int tokens,
                            int heads, Int64 row_stride, Int64 token_stride, double scale, Int64 index) {
  const int head = static_cast<int>(index % heads);
  const Int64 place = index / heads;  // of the token: b * L + j
  const Int64 b = place / tokens;
  query += b * row_stride + place % tokens * token_stride + head * caches.width;
  attend_head<kAligned>(shared, query, context, caches, head, heads, place, b, scale);
}

// Computes one pair a block.
template <class T>
__device__ void attend(const T* query, T* context, const Caches<T>& caches, int tokens, int heads, Int64 row_stride,
                       Int64 token_stride, double scale) {
  __shared__ Shared<T> shared;
  const bool aligned = caches.width % Vector<T>::kCount == 0 && is_aligned(caches.keys) && is_aligned(caches.values);
  if (aligned) {
    attend_pair<true>(shared, query, context, caches, tokens, heads, row_stride, token_stride, scale, blockIdx.x);
  } else {
    attend_pair<false>(shared, query, context, caches, tokens, heads, row_stride, token_stride, scale, blockIdx.x);
  }
}

}  // namespace kernel
