// Kernels of int8 weights for one set of instructions; see float_tiles.h. The namespace has kLanes, Floats, Ints,
// kWordParts, part_of(), dot() and add_product() of the set.

using TotalsAt [[gnu::may_alias, gnu::aligned(4)]] = Floats;
using IntsAt [[gnu::may_alias, gnu::aligned(4)]] = Ints;

template <int Share, int Rows>
DRAFTSMITH_TARGET void multiply(const Int8Task& task) {
  constexpr int kVectors = int8_vectors(kLanes, Rows);
  constexpr int64_t kTiles = kPanel / kLanes / kVectors;
  constexpr int64_t kAsked = kPanel * kInt8Step / Share / kTiles;  // weights asked for with a step
  // Several rows ask for none of the weights that they read once: the processor reads ahead faster on its own.
  constexpr bool kStreams = Share == 1 && kTiles == 1;
  constexpr bool kAsks = Rows == 1 || !kStreams;
  const uint8_t* ahead = kStreams ? task.weights + kAhead : task.ahead;
  for (int64_t first = 0; first < kPanel; first += kVectors * kLanes) {
    Ints sums[Rows][kVectors];
#pragma GCC unroll 8
    for (int row = 0; row < Rows; ++row) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[row][v] = Ints{} + task.offsets[row * task.groups];
    }
    const uint8_t* weights = task.weights + first * kInt8Step;
    for (int64_t step = 0; step < task.steps; ++step, weights += kPanel * kInt8Step, ahead += kAsked) {
#pragma GCC unroll 8
      for (int64_t asked = 0; asked < (kAsks ? kAsked : 0); asked += kLine) ask_for_line<!kStreams>(ahead + asked);
#pragma GCC unroll 2
      for (int part = 0; part < kWordParts; ++part) {
        decltype(part_of(Ints{}, 0)) weight[kVectors];
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) weight[v] = part_of(reinterpret_cast<const IntsAt*>(weights)[v], part);
#pragma GCC unroll 8
        for (int row = 0; row < Rows; ++row) {
          int32_t inputs;
          __builtin_memcpy(&inputs, task.x + row * task.width + part * kInt8Group + step * kInt8Step, sizeof(inputs));
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) sums[row][v] = dot(sums[row][v], weight[v], inputs);
        }
      }
    }
#pragma GCC unroll 8
    for (int row = 0; row < Rows; ++row) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        TotalsAt& total = reinterpret_cast<TotalsAt*>(task.sums[row] + first)[v];
        total = add_product(total, __builtin_convertvector(sums[row][v], Floats), task.scales[row * task.groups]);
      }
    }
  }
}

template <int... Rows>
constexpr Int8Kernels int8_table(std::integer_sequence<int, Rows...>) {
  return {{{{{multiply<1, Rows + 1>...}, {multiply<2, Rows + 1>...}, {multiply<4, Rows + 1>...}}}}, kWordParts};
}
