// Kernels of int8 weights for one set of instructions; see float_tiles.h. The namespace has kLanes, Floats, Ints, dot()
// and add_product() of the set.

template <int Share, int Rows>
DRAFTSMITH_TARGET void multiply(const Int8Task& task) {
  constexpr int kVectors = tile_vectors(kLanes, Rows);
  constexpr int64_t kAsked = kPanel * kInt8Step / Share;  // weights of a step that this pass asks for
  for (int64_t first = 0; first < kPanel; first += kVectors * kLanes) {
    Ints sums[Rows][kVectors];
    for (int row = 0; row < Rows; ++row) {
      for (int v = 0; v < kVectors; ++v) sums[row][v] = Ints{} + (kOffsetSums ? task.offsets[row * task.groups] : 0);
    }
    const uint8_t* weights = task.weights + first * kInt8Step;
    for (int64_t step = 0; step < task.steps; ++step, weights += kPanel * kInt8Step) {
      if (first == 0) {
        for (int64_t asked = 0; asked < kAsked; asked += kLine) __builtin_prefetch(task.ahead + step * kAsked + asked);
      }
      Ints weight[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        __builtin_memcpy(&weight[v], weights + v * sizeof(Ints), sizeof(Ints));
      }
      for (int row = 0; row < Rows; ++row) {
        int32_t four;
        __builtin_memcpy(&four, task.x + row * task.width + step * kInt8Step, sizeof(four));
        for (int v = 0; v < kVectors; ++v) sums[row][v] = dot(sums[row][v], weight[v], four);
      }
    }
    for (int row = 0; row < Rows; ++row) {
      for (int v = 0; v < kVectors; ++v) {
        Floats total;
        float* to = task.sums[row] + first + v * kLanes;
        __builtin_memcpy(&total, to, sizeof(total));
        total = add_product(total, __builtin_convertvector(sums[row][v], Floats), task.scales[row * task.groups]);
        __builtin_memcpy(to, &total, sizeof(total));
      }
    }
  }
}

template <int... Rows>
constexpr PanelKernels<Int8Task> int8_table(std::integer_sequence<int, Rows...>) {
  return {{{{multiply<1, Rows + 1>...}, {multiply<2, Rows + 1>...}, {multiply<4, Rows + 1>...}}}};
}
