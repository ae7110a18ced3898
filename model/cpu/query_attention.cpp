#include "model/cpu/query_attention.h"

#include <algorithm>
#include <limits>
#include <vector>

#include <ATen/Parallel.h>

#include "base/util.h"
#include "model/cpu/block_attention.h"
#include "model/layers/dense_attention.h"

namespace draftsmith::model {
namespace {

// Multiplications one thread takes at least; less is faster on one thread than shared.
constexpr int64_t kAttentionPerTask = 1 << 18;
// Longer steps (prompts) are computed in blocks.
constexpr int64_t kLongestQueryLoop = 32;

using Lanes = EightFloats;
constexpr int kLanes = 8;
// Scores in memory are a multiple of so many, so that no loop over them has a rest of another code.
constexpr int64_t kScores = 16;

// One query against the slots [0, prefix) and, where own >= 0, slot `own`.
struct Query {
  const float* query;   // [K]
  const float* keys;    // [T,K]
  const float* values;  // [T,K]
  const float* bias;    // of slot 0, or null; bias[i] is slot i's
  float own_bias;
  int64_t prefix;
  int64_t own;
  int64_t width;
  float scale;
  float cap;  // of scores; 0: none

  int64_t count() const { return prefix + (own >= 0 ? 1 : 0); }
  int64_t slot(int64_t s) const { return s < prefix ? s : own; }
};

// By reference: without AVX in the whole program a vector is not a value to return.
DRAFTSMITH_INLINE const Lanes& lanes_at(const float* numbers) {
  return *reinterpret_cast<const Lanes*>(numbers);
}

// Writes the sums of the numbers of each vector, as many as a vector has. Halves the vectors in turn.
DRAFTSMITH_INLINE void add_up(Lanes* of, float* sums) {
#pragma GCC unroll 2
  for (int left = 4; left > 1; left /= 2) {
#pragma GCC unroll 4
    for (int i = 0; i < left; ++i) {
      const Lanes a = of[2 * i], b = of[2 * i + 1];
      of[i] = __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) +
              __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
    }
  }
  *reinterpret_cast<Lanes*>(sums) = __builtin_shufflevector(of[0], of[1], 0, 1, 2, 3, 8, 9, 10, 11) +
                                    __builtin_shufflevector(of[0], of[1], 4, 5, 6, 7, 12, 13, 14, 15);
}

// Writes the products of the query and a vector's worth of keys, from the s-th on. Behind the last it repeats the last.
DRAFTSMITH_INLINE void multiply_keys(const Query& in, int64_t s, float* products) {
  const float* keys[kLanes];
#pragma GCC unroll 8
  for (int k = 0; k < kLanes; ++k) keys[k] = in.keys + in.slot(std::min(s + k, in.count() - 1)) * in.width;
  Lanes sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= in.width; i += kLanes) {
    const Lanes query = lanes_at(in.query + i);
#pragma GCC unroll 8
    for (int k = 0; k < kLanes; ++k) sums[k] += query * lanes_at(keys[k] + i);
  }
  add_up(sums, products);
  for (; i < in.width; ++i) {
    for (int k = 0; k < kLanes; ++k) products[k] += in.query[i] * keys[k][i];
  }
}

// Writes the sums of kVectors vectors of numbers of each value, from `first` on, by their weights.
template <int kVectors>
DRAFTSMITH_INLINE void add_values(const Query& in, const float* weights, int64_t first, float* out) {
  Lanes sums[kVectors] = {};
  for (int64_t s = 0; s < in.count(); ++s) {
    const float* value = in.values + in.slot(s) * in.width + first;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[v] += weights[s] * lanes_at(value + v * kLanes);
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) reinterpret_cast<Lanes*>(out + first)[v] = sums[v];
}

// A function of its own: within attend_query() its constants would lie on the stack.
DRAFTSMITH_VECTOR_CODE void cap_scores(float* scores, int64_t count, float cap) {
  for (int64_t s = 0; s < count; ++s) scores[s] = soft_cap(scores[s], cap);
}

// Returns the highest of `count` scores, which is a multiple of kScores. Skips NaN.
DRAFTSMITH_INLINE float highest_of(const float* scores, int64_t count) {
  Lanes highest = Lanes{} - std::numeric_limits<float>::infinity();
  for (int64_t s = 0; s < count; s += kLanes) {
    const Lanes next = lanes_at(scores + s);
    highest = highest < next ? next : highest;
  }
  float top = -std::numeric_limits<float>::infinity();
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; ++i) top = std::max<float>(top, highest[i]);
  return top;
}

DRAFTSMITH_VECTOR_CODE void attend_query(const Query& in, float* scores, float* out) {
  const int64_t count = in.count(), padded = (count + kScores - 1) / kScores * kScores;
  for (int64_t s = 0; s < count; s += kLanes) multiply_keys(in, s, scores + s);
  for (int64_t s = 0; s < padded; ++s) scores[s] *= in.scale;
  if (in.bias != nullptr) {
    for (int64_t s = 0; s < in.prefix; ++s) scores[s] += in.bias[s];
    if (in.own >= 0) scores[in.prefix] += in.own_bias;
  }
  if (in.cap > 0) cap_scores(scores, padded, in.cap);
  std::fill(scores + count, scores + padded, -std::numeric_limits<float>::infinity());
  const float highest = highest_of(scores, padded);
  for (int64_t s = 0; s < padded; ++s) scores[s] = exponential(scores[s] - highest);
  const float factor = 1.0F / sum_in_lanes(padded, [scores](int64_t s) { return scores[s]; });
  for (int64_t s = 0; s < padded; ++s) scores[s] *= factor;
  int64_t i = 0;
  for (; i + 8 * kLanes <= in.width; i += 8 * kLanes) add_values<8>(in, scores, i, out);
  for (; i + 4 * kLanes <= in.width; i += 4 * kLanes) add_values<4>(in, scores, i, out);
  for (; i + kLanes <= in.width; i += kLanes) add_values<1>(in, scores, i, out);
  if (i == in.width) return;
  std::fill(out + i, out + in.width, 0.0F);
  for (int64_t s = 0; s < count; ++s) {
    const float* value = in.values + in.slot(s) * in.width;
    for (int64_t j = i; j < in.width; ++j) out[j] += scores[s] * value[j];
  }
}

// Computes the part's tokens for one head of queries.
void attend_head(const KernelShape& shape, const VisibleKeys& visible, const KernelPointers& pointers,
                 const HeadPart& part, int64_t head) {
  static thread_local std::vector<float> scores;
  const auto b = static_cast<size_t>(part.row);
  scores.resize(std::max(scores.size(), static_cast<size_t>(visible.prefix(b, shape.tokens) + kScores)));
  const int64_t inner = shape.heads * shape.head_width;
  const int64_t cache = (visible.cache_row[b] * shape.key_value_heads + part.key_head) * shape.slots * shape.head_width;
  // The bias of distance 0; the columns behind it are those of later keys.
  const float* bias_end =
      pointers.bias == nullptr ? nullptr : pointers.bias + (head + 1) * shape.bias_columns - visible.block;
  for (int64_t j = part.begin; j < part.end; ++j) {
    float* out = pointers.context + (part.row * shape.tokens + j) * inner + head * shape.head_width;
    const int64_t prefix = visible.prefix(b, j);
    if (j >= visible.queries[b] || (prefix == 0 && !visible.own_slot)) {
      std::fill(out, out + shape.head_width, 0.0F);
      continue;
    }
    const float* query =
        pointers.query + part.row * shape.query_row_stride + j * shape.query_token_stride + head * shape.head_width;
    const int64_t position = visible.position(b, j);
    const int64_t first = shape.window > 0 ? std::max<int64_t>(0, position + 1 - shape.window) : 0;  // key
    const int64_t start = cache + first * shape.head_width;
    attend_query({query, pointers.keys + start, pointers.values + start,
                  bias_end == nullptr ? nullptr : bias_end - position + first, bias_end == nullptr ? 0.0F : *bias_end,
                  prefix - first, visible.own_slot ? visible.first[b] + j - first : -1, shape.head_width,
                  static_cast<float>(shape.scale), static_cast<float>(shape.score_cap)},
                 scores.data(), out);
  }
}

bool attends_in_blocks(const KernelShape& shape, const VisibleKeys& visible) {
  return shape.tokens > kLongestQueryLoop && !visible.own_slot && visible.block == 1;
}

// Computes the part in blocks of queries and keys.
void attend_in_blocks(const KernelShape& shape, const VisibleKeys& visible, const KernelPointers& pointers,
                      const HeadPart& part) {
  const auto b = static_cast<size_t>(part.row);
  const int64_t width = shape.head_width, group = shape.heads / shape.key_value_heads;
  const int64_t inner = shape.heads * width, first_head = part.key_head * group;
  const int64_t cache = (visible.cache_row[b] * shape.key_value_heads + part.key_head) * shape.slots * width;
  float* context = pointers.context + part.row * shape.tokens * inner + first_head * width;
  const float* bias = pointers.bias;
  if (bias != nullptr) bias += (first_head + 1) * shape.bias_columns - 1 - visible.position(b, 0);
  const int64_t relevant = std::min(visible.queries[b], shape.tokens);
  attend_blocks({.query = pointers.query + part.row * shape.query_row_stride + first_head * width,
                 .keys = pointers.keys + cache,
                 .values = pointers.values + cache,
                 .bias = bias,
                 .context = context,
                 .heads = group,
                 .width = width,
                 .prefix = visible.first[b],
                 .growing = visible.growing,
                 .window = shape.window,
                 .query_stride = shape.query_token_stride,
                 .key_stride = width,
                 .context_stride = inner,
                 .bias_stride = shape.bias_columns,
                 .scale = shape.scale,
                 .score_cap = shape.score_cap},
                part.begin, std::min(part.end, relevant));
  for (int64_t j = std::max(part.begin, relevant); j < part.end; ++j) {
    std::fill_n(context + j * inner, group * width, 0.0F);
  }
}

}  // namespace

int64_t tokens_of_part(const KernelShape& shape, const VisibleKeys& visible) {
  if (!attends_in_blocks(shape, visible)) return 0;
  return block_tokens(shape.tokens, std::ssize(visible.first) * shape.key_value_heads,
                      shape.heads / shape.key_value_heads, at::get_num_threads());
}

void attend_part(const KernelShape& shape, const VisibleKeys& visible, const KernelPointers& pointers,
                 const HeadPart& part) {
  if (attends_in_blocks(shape, visible)) return attend_in_blocks(shape, visible, pointers, part);
  const int64_t group = shape.heads / shape.key_value_heads;
  for (int64_t i = 0; i < group; ++i) attend_head(shape, visible, pointers, part, part.key_head * group + i);
}

void attention_kernel(const KernelShape& shape, const VisibleKeys& visible, const KernelPointers& pointers) {
  const int64_t part = tokens_of_part(shape, visible), tokens = part > 0 ? part : std::max<int64_t>(1, shape.tokens);
  const int64_t parts = (shape.tokens + tokens - 1) / tokens, heads = shape.key_value_heads;
  const int64_t work = visible.used(shape.tokens) * tokens * shape.head_width * 2 * shape.heads / heads;
  const int64_t grain = part > 0 ? 1 : std::max<int64_t>(1, kAttentionPerTask / std::max<int64_t>(1, work));
  at::parallel_for(0, std::ssize(visible.first) * heads * parts, grain, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const int64_t head = index / parts, first = index % parts * tokens;
      attend_part(shape, visible, pointers,
                  {head / heads, head % heads, first, std::min(first + tokens, shape.tokens)});
    }
  });
}

}  // namespace draftsmith::model
