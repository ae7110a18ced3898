#include "model/cpu/block_attention.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/util.h"
#include "model/cpu/panel_kernels.h"

namespace draftsmith::model {
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
  return sum_in_lanes(kPanel, [&](int64_t s) { return sums.numbers[s]; });
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
