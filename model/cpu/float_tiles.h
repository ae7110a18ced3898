// Kernels of fp32 and bf16 weights for one set of instructions. panel_kernels.cpp includes this text once for each set,
// inside a namespace that has the set's kLanes and Floats, where DRAFTSMITH_TARGET names the set.

using Words = uint32_t __attribute__((vector_size(4 * kLanes)));
// Vectors in memory: one instruction reads or writes each. Copies of bytes would go in halves, by way of the stack.
using FloatsAt [[gnu::may_alias, gnu::aligned(4)]] = Floats;
using WordsAt [[gnu::may_alias, gnu::aligned(2)]] = Words;

// Returns the first output of a panel's v-th vector: see bf16_place().
constexpr int64_t vector_begin(float /*stored*/, int64_t v) {
  return v * kLanes;
}
constexpr int64_t vector_begin(uint16_t /*stored*/, int64_t v) {
  return v / 2 * kLanes / 16 * 32 + v / 2 * kLanes % 16 + v % 2 * 16;
}

// Loads two vectors of an input's weights, the v-th and the next.
DRAFTSMITH_TARGET inline void load_pair(const float* weights, int64_t v, Floats* to) {
  to[0] = *reinterpret_cast<const FloatsAt*>(weights + v * kLanes);
  to[1] = *reinterpret_cast<const FloatsAt*>(weights + (v + 1) * kLanes);
}
DRAFTSMITH_TARGET inline void load_pair(const uint16_t* weights, int64_t v, Floats* to) {
  const Words words = *reinterpret_cast<const WordsAt*>(weights + v * kLanes);
  to[0] = reinterpret_cast<Floats>(words << 16);
  to[1] = reinterpret_cast<Floats>(words & 0xffff0000U);
}

// Every inner loop is unrolled, so that sums and weights stay in registers.
template <class Stored, int Share, int Rows>
DRAFTSMITH_TARGET void multiply(const FloatTask<Stored>& task) {
  constexpr int kVectors = float_vectors(kLanes, Rows, std::is_same_v<Stored, uint16_t>);
  constexpr bool kKept = Rows > 1 && (Rows + 1) * kVectors < (kLanes == 16 ? 32 : 16);  // sums and weights in registers
  constexpr int64_t kTiles = kPanel / kLanes / kVectors;
  constexpr int64_t kAsked = kPanel / Share / kTiles;  // weights asked for with an input
  constexpr int64_t kLineWeights = kLine / static_cast<int64_t>(sizeof(Stored));
  // Several rows compute longer with a line, and ask for it further ahead.
  constexpr int64_t kBytesAhead = Rows == 1 ? kAhead : 3 * kAhead;
  const Stored* ahead = Share == 1 && kTiles == 1 ? task.weights + kBytesAhead / sizeof(Stored) : task.ahead;
  for (int64_t first = 0; first < kTiles * kVectors; first += kVectors) {
    Floats sums[Rows][kVectors];
#pragma GCC unroll 8
    for (int row = 0; row < Rows; ++row) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sums[row][v] = *reinterpret_cast<FloatsAt*>(task.sums[row] + vector_begin(Stored{}, first + v));
      }
    }
    const Stored* weights = task.weights;
    for (int64_t i = 0; i < task.inputs; ++i, weights += kPanel, ahead += kAsked) {
#pragma GCC unroll 8
      for (int64_t asked = 0; asked < kAsked; asked += kLineWeights) ask_for_line<(Rows > 1)>(ahead + asked);
      Floats weight[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; v += 2) load_pair(weights, first + v, weight + v);
      if constexpr (kKept) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) asm("" : "+v"(weight[v]));  // or each row would load it
      }
#pragma GCC unroll 8
      for (int row = 0; row < Rows; ++row) {
        const float factor = task.x[row * task.width + i];
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sums[row][v] += weight[v] * factor;
      }
    }
#pragma GCC unroll 8
    for (int row = 0; row < Rows; ++row) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        *reinterpret_cast<FloatsAt*>(task.sums[row] + vector_begin(Stored{}, first + v)) = sums[row][v];
      }
    }
  }
}

template <class Stored, int... Rows>
constexpr PanelKernels<FloatTask<Stored>> float_table(std::integer_sequence<int, Rows...>) {
  return {
      {{{multiply<Stored, 1, Rows + 1>...}, {multiply<Stored, 2, Rows + 1>...}, {multiply<Stored, 4, Rows + 1>...}}}};
}
