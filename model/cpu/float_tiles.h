// Kernels of fp32 and bf16 weights for one set of instructions. panel_kernels.cpp includes this text once for each set,
// inside a namespace that has the set's kLanes and Floats, where DRAFTSMITH_TARGET names the set.

using Words = uint32_t __attribute__((vector_size(4 * kLanes)));

// The first output of a pair of vectors; the second vector begins 16 outputs later.
constexpr int64_t pair_begin(int64_t pair) {
  return pair * kLanes / 16 * 32 + pair * kLanes % 16;
}

DRAFTSMITH_TARGET inline void load_pair(const float* weights, int64_t pair, Floats* to) {
  __builtin_memcpy(to, weights + pair_begin(pair), sizeof(Floats));
  __builtin_memcpy(to + 1, weights + pair_begin(pair) + 16, sizeof(Floats));
}

DRAFTSMITH_TARGET inline void load_pair(const uint16_t* weights, int64_t pair, Floats* to) {
  Words words;
  __builtin_memcpy(&words, weights + pair * kLanes * 2, sizeof(words));
  to[0] = reinterpret_cast<Floats>(words << 16);
  to[1] = reinterpret_cast<Floats>(words & 0xffff0000U);
}

template <class Stored, int Share, int Rows>
DRAFTSMITH_TARGET void multiply(const FloatTask<Stored>& task) {
  constexpr int64_t kAsked = kPanel / Share;  // weights of an input that this pass asks for
  constexpr int kVectors = tile_vectors(kLanes, Rows);
  for (int64_t tile = 0; tile < kPanel / kLanes / 2; tile += kVectors / 2) {
    Floats sums[Rows][kVectors];
    for (int row = 0; row < Rows; ++row) {
      for (int v = 0; v < kVectors; ++v) {
        __builtin_memcpy(&sums[row][v], task.sums[row] + pair_begin(tile + v / 2) + v % 2 * 16, sizeof(Floats));
      }
    }
    const Stored* weights = task.weights;
    for (int64_t i = 0; i < task.inputs; ++i, weights += kPanel) {
      if (tile == 0) {
        for (int64_t asked = 0; asked < kAsked; asked += kLine / static_cast<int64_t>(sizeof(Stored))) {
          __builtin_prefetch(task.ahead + i * kAsked + asked);
        }
      }
      Floats weight[kVectors];
      for (int v = 0; v < kVectors; v += 2) load_pair(weights, tile + v / 2, weight + v);
      for (int row = 0; row < Rows; ++row) {
        const float factor = task.x[row * task.width + i];
        for (int v = 0; v < kVectors; ++v) sums[row][v] += weight[v] * factor;
      }
    }
    for (int row = 0; row < Rows; ++row) {
      for (int v = 0; v < kVectors; ++v) {
        __builtin_memcpy(task.sums[row] + pair_begin(tile + v / 2) + v % 2 * 16, &sums[row][v], sizeof(Floats));
      }
    }
  }
}

template <class Stored, int... Rows>
constexpr PanelKernels<FloatTask<Stored>> float_table(std::integer_sequence<int, Rows...>) {
  return {
      {{{multiply<Stored, 1, Rows + 1>...}, {multiply<Stored, 2, Rows + 1>...}, {multiply<Stored, 4, Rows + 1>...}}}};
}
