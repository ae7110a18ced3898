#include "model/cpu/block_attention.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include <ATen/Parallel.h>

#include "base/util.h"
#include "model/cpu/panel_kernels.h"
#include "model/layers/dense_attention.h"

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
  T cap;  // of scores; 0: none
};

// Returns c tanh(x / c).
template <class T>
DRAFTSMITH_INLINE T soft_cap(T x, T cap) {
  return cap * tanh_of(x * (1 / cap));
}

// Functions of their own: within attend() their constants would lie on the stack.
DRAFTSMITH_VECTOR_CODE void cap_scores(float* scores, int64_t count, float cap) {
  for (int64_t s = 0; s < count; ++s) scores[s] = soft_cap(scores[s], cap);
}

DRAFTSMITH_VECTOR_CODE void cap_scores(double* scores, int64_t count, double cap) {
  for (int64_t s = 0; s < count; ++s) scores[s] = soft_cap(scores[s], cap);
}

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
  if (in.cap > 0) {
    highest = soft_cap(highest, in.cap);
    cap_scores(scores, count, in.cap);
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
    const int64_t position = visible.position(b, j);
    const int64_t first =
        shape.window > 0 ? std::max<int64_t>(0, position + 1 - shape.window) : 0;  // key in the window
    const int64_t start = cache + first * shape.head_width;
    attend_query({query, pointers.keys + start, pointers.values + start,
                  bias_end == nullptr ? nullptr : bias_end - position + first, bias_end == nullptr ? T(0) : *bias_end,
                  prefix - first, visible.own_slot ? visible.first[b] + j - first : -1, shape.head_width,
                  shape.head_width, static_cast<T>(shape.scale), static_cast<T>(shape.score_cap)},
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
  at::parallel_for(0, tasks, std::max<int64_t>(1, kAttentionPerTask / work), task);
}

template void attend_head<float>(const KernelShape&, const VisibleKeys&, const KernelPointers<float>&, int64_t,
                                 int64_t);
template void attention_kernel<float>(const KernelShape&, const VisibleKeys&, const KernelPointers<float>&);
template void attention_kernel<double>(const KernelShape&, const VisibleKeys&, const KernelPointers<double>&);

namespace {

constexpr int64_t kGroup = kPasses * kPanelRows;     // queries that read a panel while it is in the first cache
constexpr int64_t kKeyPanels = 4;                    // of a block
constexpr int64_t kBlockKeys = kKeyPanels * kPanel;  // keys and values of a block fit the second cache
constexpr int64_t kMostQueries = 512;                // of a call; so do their sums
constexpr int64_t kFewestQueries = 96;
constexpr int64_t kCallsPerThread = 4;
constexpr int64_t kLanes = 16;

// 64 numbers as the kernels of panels read and write them.
struct alignas(64) Line {
  float numbers[kPanel];
};

// A thread's memory, which only grows.
struct Memory {
  std::vector<Line> keys;      // [kKeyPanels,K]: a line holds one number of 64 keys
  std::vector<Line> values;    // [C,kBlockKeys], C = K / 64 rounded up: a line holds up to 64 numbers of a value
  std::vector<Line> scores;    // [kKeyPanels,kGroup]
  std::vector<Line> sums;      // [heads,groups,C,kGroup]: weights times values
  std::vector<float> highest;  // [heads,queries] scores so far
  std::vector<float> total;    // likewise, of weights relative to the highest score
};

template <class T>
void fit(std::vector<T>& memory, int64_t size) {
  memory.resize(std::max(memory.size(), static_cast<size_t>(size)));
}

// Lays out up to 64 keys: the i-th numbers of all keys in line i. Absent keys are zeros.
DRAFTSMITH_VECTOR_CODE void pack_keys(const float* from, int64_t stride, int64_t count, int64_t width, Line* to) {
  for (int64_t first = 0; first < kPanel; first += kLanes) {
    const int64_t present = std::clamp<int64_t>(count - first, 0, kLanes);
    for (int64_t i = 0; i < width; ++i) {
      float* line = to[i].numbers + first;
      for (int64_t j = 0; j < present; ++j) line[j] = from[(first + j) * stride + i];
      for (int64_t j = present; j < kLanes; ++j) line[j] = 0;
    }
  }
}

// Lays out values: up to 64 numbers of each in a line, for each panel of numbers.
void pack_values(const float* from, int64_t stride, int64_t count, int64_t width, Line* to) {
  for (int64_t first = 0; first < width; first += kPanel, to += kBlockKeys) {
    const int64_t present = std::min(kPanel, width - first);
    for (int64_t s = 0; s < count; ++s) {
      std::copy_n(from + s * stride + first, present, to[s].numbers);
      std::fill_n(to[s].numbers + present, kPanel - present, 0.0F);
    }
  }
}

// One query's products with the keys of a block.
struct Scores {
  Line* lines;        // `kGroup` lines from a panel to the next
  int64_t panels;     // that some query of the group sees
  int64_t visible;    // keys that this query sees, without a window
  const float* bias;  // of the block's first key, or null
  float scale;
  float cap;       // of scores; 0: none
  int64_t before;  // keys that lie before the query's window
};

// Sets each number of a line to the higher one of two: the other's only if it is higher, so not if it is NaN.
DRAFTSMITH_INLINE void raise(float* highest, const float* other, int64_t count) {
  for (int64_t i = 0; i < count; ++i) highest[i] = highest[i] < other[i] ? other[i] : highest[i];
}

// Turns products into scores, those of hidden keys into -inf. Returns the highest. Each operation is a loop of its own
// over a copy of the line, which becomes vector code.
DRAFTSMITH_INLINE float finish_scores(const Scores& in) {
  Line top;
  std::fill_n(top.numbers, kPanel, -std::numeric_limits<float>::infinity());
  for (int64_t panel = 0; panel < in.panels; ++panel) {
    const int64_t visible = std::clamp<int64_t>(in.visible - panel * kPanel, 0, kPanel);
    Line line = in.lines[panel * kGroup];
    for (int64_t s = 0; s < kPanel; ++s) line.numbers[s] *= in.scale;
    if (in.bias != nullptr) {
      const float* bias = in.bias + panel * kPanel;
      if (visible == kPanel) {
        for (int64_t s = 0; s < kPanel; ++s) line.numbers[s] += bias[s];
      } else {
        for (int64_t s = 0; s < visible; ++s) line.numbers[s] += bias[s];
      }
    }
    if (in.cap > 0) {
      for (int64_t s = 0; s < kPanel; ++s) line.numbers[s] = soft_cap(line.numbers[s], in.cap);
    }
    for (int64_t s = visible; s < kPanel; ++s) line.numbers[s] = -std::numeric_limits<float>::infinity();
    const int64_t before = std::clamp<int64_t>(in.before - panel * kPanel, 0, kPanel);
    for (int64_t s = 0; s < before; ++s) line.numbers[s] = -std::numeric_limits<float>::infinity();
    raise(top.numbers, line.numbers, kPanel);
    in.lines[panel * kGroup] = line;
  }
  for (int64_t half = kPanel / 2; half > 0; half /= 2) {
    const Line upper = top;
    raise(top.numbers, upper.numbers + half, half);
  }
  return top.numbers[0];
}

// Turns scores into weights relative to `highest`. Returns their sum.
DRAFTSMITH_INLINE float weigh(const Scores& in, float highest) {
  Line sums{};
  for (int64_t panel = 0; panel < in.panels; ++panel) {
    Line line = in.lines[panel * kGroup];
    for (int64_t s = 0; s < kPanel; ++s) line.numbers[s] = exponential(line.numbers[s] - highest);
    for (int64_t s = 0; s < kPanel; ++s) sums.numbers[s] += line.numbers[s];
    in.lines[panel * kGroup] = line;
  }
  return sum_in_lanes<float>(kPanel, [&](int64_t s) { return sums.numbers[s]; });
}

// Turns a query's products into weights. Brings what earlier blocks left, its highest score, total and sums [C] of
// lines `kGroup` apart, up to date.
DRAFTSMITH_VECTOR_CODE void weigh_query(const Scores& in, float& highest, float& total, Line* sums, int64_t lines) {
  if (in.visible <= 0 || in.before >= in.panels * kPanel) {  // all keys lie behind the query, or before its window
    for (int64_t panel = 0; panel < in.panels; ++panel) in.lines[panel * kGroup] = Line{};
    return;
  }
  const float before = highest;
  const float top = finish_scores(in);
  highest = before < top ? top : before;
  const float weights = weigh(in, highest);
  const float factor = before == highest ? 1.0F : exponential(before - highest);
  total = total * factor + weights;
  if (factor == 1.0F) return;
  for (int64_t line = 0; line < lines; ++line) {
    for (float& number : sums[line * kGroup].numbers) number *= factor;
  }
}

// Computes one call of attend_blocks().
class Blocks {
 public:
  Blocks(const BlockHead& head, int64_t begin, int64_t end, Memory& memory)
      : head_(head),
        begin_(begin),
        tokens_(end - begin),
        groups_((tokens_ + kGroup - 1) / kGroup),
        lines_((head.width + kPanel - 1) / kPanel),
        memory_(memory),
        kernels_(float_kernels<float>(cpu_instructions())) {
    const int64_t sums = head.heads * groups_ * lines_ * kGroup, queries = head.heads * tokens_;
    fit(memory.keys, kKeyPanels * head.width);
    fit(memory.values, lines_ * kBlockKeys);
    fit(memory.scores, kKeyPanels * kGroup);
    fit(memory.sums, sums);
    fit(memory.highest, queries);
    fit(memory.total, queries);
    std::fill_n(memory.sums.begin(), sums, Line{});
    std::fill_n(memory.highest.begin(), queries, -std::numeric_limits<float>::infinity());
    std::fill_n(memory.total.begin(), queries, 0.0F);
  }

  void run() {
    for (int64_t first = before(0) / kBlockKeys * kBlockKeys; first < visible(tokens_ - 1); first += kBlockKeys) {
      const int64_t keys = std::min(kBlockKeys, visible(tokens_ - 1) - first);
      pack(first, keys);
      for (int64_t head = 0; head < head_.heads; ++head) {
        for (int64_t group = 0; group < groups_; ++group) attend(head, group, first);
      }
    }
    finish();
  }

 private:
  // Returns how many keys the call's t-th token sees.
  int64_t visible(int64_t t) const { return head_.prefix + (head_.growing ? begin_ + t : 0); }
  // Returns how many of them lie before its window.
  int64_t before(int64_t t) const { return head_.window > 0 ? std::max<int64_t>(0, visible(t) - head_.window) : 0; }
  Line* sums(int64_t head, int64_t group) const {
    return memory_.sums.data() + (head * groups_ + group) * lines_ * kGroup;
  }

  void pack(int64_t first, int64_t keys) {
    for (int64_t key = 0; key < keys; key += kPanel) {
      pack_keys(head_.keys + (first + key) * head_.key_stride, head_.key_stride, std::min(kPanel, keys - key),
                head_.width, memory_.keys.data() + key / kPanel * head_.width);
    }
    pack_values(head_.values + first * head_.key_stride, head_.key_stride, keys, head_.width, memory_.values.data());
  }

  // Adds the products of rows x [rows,inputs], `width` numbers apart, and lines [inputs] to sums [rows].
  void multiply(const float* x, int64_t width, int64_t rows, const Line* lines, int64_t inputs, Line* sums) const {
    const RowPasses passes(rows);
    for (int64_t pass = 0; pass < passes.count; ++pass) {
      const int64_t row = pass * passes.each;
      const float* weights = lines->numbers;
      kernels_(kPasses, passes.rows(pass), {weights, weights, x + row * width, width, inputs, &sums[row].numbers});
    }
  }

  // Adds the keys and values of the block from key `first` on to the sums of a group of one head's queries.
  void attend(int64_t head, int64_t group, int64_t first) {
    const int64_t from = group * kGroup, rows = std::min(kGroup, tokens_ - from);
    const int64_t keys = std::min(kBlockKeys, visible(from + rows - 1) - first);  // that any of them sees
    if (keys <= 0 || before(from) >= first + kBlockKeys) return;
    const int64_t panels = (keys + kPanel - 1) / kPanel;
    Line* scores = memory_.scores.data();
    const float* query = head_.query + (begin_ + from) * head_.query_stride + head * head_.width;
    for (int64_t panel = 0; panel < panels; ++panel) {
      std::fill_n(scores + panel * kGroup, rows, Line{});
      multiply(query, head_.query_stride, rows, memory_.keys.data() + panel * head_.width, head_.width,
               scores + panel * kGroup);
    }
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t t = from + row;
      const float* bias =
          head_.bias == nullptr ? nullptr : head_.bias + head * head_.bias_stride + first - (begin_ + t);
      const auto query_number = static_cast<size_t>(head * tokens_ + t);
      weigh_query({scores + row, panels, visible(t) - first, bias, static_cast<float>(head_.scale),
                   static_cast<float>(head_.score_cap), before(t) - first},
                  memory_.highest[query_number], memory_.total[query_number], sums(head, group) + row, lines_);
    }
    for (int64_t panel = 0; panel < panels; ++panel) {
      for (int64_t line = 0; line < lines_; ++line) {
        multiply(scores[panel * kGroup].numbers, kPanel, rows,
                 memory_.values.data() + line * kBlockKeys + panel * kPanel, std::min(kPanel, keys - panel * kPanel),
                 sums(head, group) + line * kGroup);
      }
    }
  }

  void finish() const {
    for (int64_t head = 0; head < head_.heads; ++head) {
      for (int64_t t = 0; t < tokens_; ++t) {
        float* out = head_.context + (begin_ + t) * head_.context_stride + head * head_.width;
        const Line* from = sums(head, t / kGroup) + t % kGroup;
        const float factor = visible(t) == 0 ? 0.0F : 1.0F / memory_.total[static_cast<size_t>(head * tokens_ + t)];
        for (int64_t first = 0; first < head_.width; first += kPanel, from += kGroup) {
          const int64_t present = std::min(kPanel, head_.width - first);
          for (int64_t i = 0; i < present; ++i) out[first + i] = from->numbers[i] * factor;
        }
      }
    }
  }

  const BlockHead& head_;
  int64_t begin_;
  int64_t tokens_;
  int64_t groups_;  // of queries of one head
  int64_t lines_;   // C
  Memory& memory_;
  PanelKernels<FloatTask<float>> kernels_;
};

}  // namespace

void attend_blocks(const BlockHead& head, int64_t begin, int64_t end) {
  static thread_local Memory memory;
  if (begin < end) Blocks(head, begin, end, memory).run();
}

int64_t block_tokens(int64_t tokens, int64_t calls, int64_t heads, int64_t threads) {
  const int64_t most = std::max(kFewestQueries, kMostQueries / heads);
  const int64_t wanted = threads == 1 ? 1 : (threads * kCallsPerThread + calls - 1) / std::max<int64_t>(1, calls);
  const int64_t parts = std::max((tokens + most - 1) / most, std::min(wanted, tokens / kFewestQueries));
  return parts <= 1 ? std::max<int64_t>(1, tokens) : (tokens + parts - 1) / parts;
}

}  // namespace draftsmith::model
