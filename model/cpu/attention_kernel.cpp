#include "model/cpu/attention_kernel.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include <ATen/Parallel.h>

#include "base/util.h"
#include "model/cpu/block_attention.h"
#include "model/layers/visible_keys.h"

namespace draftsmith::model {
namespace {

// Multiplications one thread takes at least; less is faster on one thread than shared.
constexpr int64_t kAttentionPerTask = 1 << 18;

template <class T>
DRAFTSMITH_INLINE T dot(const T* a, const T* b, int64_t width) {
  return sum_in_lanes<T>(width, [a, b](int64_t i) { return a[i] * b[i]; });
}

// One query against the slots [0, prefix) and, where own >= 0, slot `own`.
template <class T>
struct Query {
  const T* query;   // [K]
  const T* keys;    // [T,K]
  const T* values;  // [T,K]
  const T* bias;    // of slot 0, or null; bias[i] is slot i's
  T own_bias;
  int64_t prefix;
  int64_t own;
  int64_t width;
  int64_t stride;  // from a key or value to the next
  T scale;
};

template <class T>
DRAFTSMITH_INLINE void attend(const Query<T>& in, T* scores, T* out) {
  const int64_t width = in.width;
  const int64_t count = in.prefix + (in.own >= 0 ? 1 : 0);
  T highest = -std::numeric_limits<T>::infinity();
  for (int64_t s = 0; s < in.prefix; ++s) {
    scores[s] = in.scale * dot(in.query, in.keys + s * in.stride, width) + (in.bias != nullptr ? in.bias[s] : T(0));
    highest = std::max(highest, scores[s]);
  }
  if (in.own >= 0) {
    scores[in.prefix] = in.scale * dot(in.query, in.keys + in.own * in.stride, width) + in.own_bias;
    highest = std::max(highest, scores[in.prefix]);
  }
  for (int64_t s = 0; s < count; ++s) {
    scores[s] = exponential(scores[s] - highest);
  }
  T total = 0;
  for (int64_t s = 0; s < count; ++s) {
    total += scores[s];
  }
  const T factor = T(1) / total;
  std::fill(out, out + width, T(0));
  for (int64_t s = 0; s < count; ++s) {
    const T* value = in.values + (s < in.prefix ? s : in.own) * in.stride;
    const T weight = scores[s] * factor;
    for (int64_t i = 0; i < width; ++i) {
      out[i] += weight * value[i];
    }
  }
}

DRAFTSMITH_VECTOR_CODE void attend_query(const Query<float>& in, float* scores, float* out) {
  attend(in, scores, out);
}

DRAFTSMITH_VECTOR_CODE void attend_query(const Query<double>& in, double* scores, double* out) {
  attend(in, scores, out);
}

}  // namespace

template <class T>
void attend_head(const KernelShape& shape, const VisibleKeys& visible, const KernelPointers<T>& pointers, int64_t row,
                 int64_t head) {
  static thread_local std::vector<T> scores;
  const auto b = static_cast<size_t>(row);
  scores.resize(std::max(scores.size(), static_cast<size_t>(visible.prefix(b, shape.tokens) + 1)));
  const int64_t inner = shape.heads * shape.head_width;
  const int64_t group = shape.heads / shape.key_value_heads;
  const int64_t cache = (visible.cache_row[b] * shape.key_value_heads + head / group) * shape.slots * shape.head_width;
  // Of distance 0: the columns behind it are those of later keys.
  const T* bias_end =
      pointers.bias == nullptr ? nullptr : pointers.bias + (head + 1) * shape.bias_columns - visible.block;
  for (int64_t j = 0; j < shape.tokens; ++j) {
    T* out = pointers.context + (row * shape.tokens + j) * inner + head * shape.head_width;
    const int64_t prefix = visible.prefix(b, j);
    if (j >= visible.queries[b] || (prefix == 0 && !visible.own_slot)) {
      std::fill(out, out + shape.head_width, T(0));
      continue;
    }
    const T* query =
        pointers.query + row * shape.query_row_stride + j * shape.query_token_stride + head * shape.head_width;
    attend_query({query, pointers.keys + cache, pointers.values + cache,
                  bias_end == nullptr ? nullptr : bias_end - visible.position(b, j),
                  bias_end == nullptr ? T(0) : *bias_end, prefix, visible.own_slot ? visible.first[b] + j : -1,
                  shape.head_width, shape.head_width, static_cast<T>(shape.scale)},
                 scores.data(), out);
  }
}

bool attends_in_blocks(const KernelShape& shape, const VisibleKeys& visible) {
  return shape.tokens > kLongestQueryLoop && !visible.own_slot && visible.block == 1;
}

int64_t tokens_of_part(const KernelShape& shape, const VisibleKeys& visible) {
  return block_tokens(shape.tokens, std::ssize(visible.first) * shape.key_value_heads,
                      shape.heads / shape.key_value_heads, at::get_num_threads());
}

void attend_in_blocks(const KernelShape& shape, const VisibleKeys& visible, const KernelPointers<float>& pointers,
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
                 .query_stride = shape.query_token_stride,
                 .key_stride = width,
                 .context_stride = inner,
                 .bias_stride = shape.bias_columns,
                 .scale = shape.scale},
                part.begin, std::min(part.end, relevant));
  for (int64_t j = std::max(part.begin, relevant); j < part.end; ++j) {
    std::fill_n(context + j * inner, group * width, 0.0F);
  }
}

namespace {

// Computes all heads in blocks, on all threads.
void attention_in_blocks(const KernelShape& shape, const VisibleKeys& visible, const KernelPointers<float>& pointers) {
  const int64_t tokens = tokens_of_part(shape, visible), parts = (shape.tokens + tokens - 1) / tokens;
  at::parallel_for(0, std::ssize(visible.first) * shape.key_value_heads * parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const int64_t head = index / parts, first = index % parts * tokens;
      attend_in_blocks(
          shape, visible, pointers,
          {head / shape.key_value_heads, head % shape.key_value_heads, first, std::min(first + tokens, shape.tokens)});
    }
  });
}

}  // namespace

template <class T>
void attention_kernel(const KernelShape& shape, const VisibleKeys& visible, const KernelPointers<T>& pointers) {
  if constexpr (std::is_same_v<T, float>) {
    if (attends_in_blocks(shape, visible)) return attention_in_blocks(shape, visible, pointers);
  }
  const auto task = [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      attend_head(shape, visible, pointers, index / shape.heads, index % shape.heads);
    }
  };
  const int64_t tasks = static_cast<int64_t>(visible.first.size()) * shape.heads;
  const int64_t work = std::max<int64_t>(1, visible.used(shape.tokens) * shape.tokens * shape.head_width * 2);
  if (tasks * work <= kAttentionPerTask) {
    task(0, tasks);
  } else {
    at::parallel_for(0, tasks, std::max<int64_t>(1, kAttentionPerTask / work), task);
  }
}

template void attend_head<float>(const KernelShape&, const VisibleKeys&, const KernelPointers<float>&, int64_t,
                                 int64_t);
template void attention_kernel<float>(const KernelShape&, const VisibleKeys&, const KernelPointers<float>&);
template void attention_kernel<double>(const KernelShape&, const VisibleKeys&, const KernelPointers<double>&);

}  // namespace draftsmith::model
