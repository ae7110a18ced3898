// Products of int8 weights in AMX's tiles: 16 rows by 16 outputs by 64 inputs in one instruction. Sums of integers are
// exact, so they equal those of the other kernels (model/cpu/panel_kernels.h) to the bit.
#pragma once

#include <cstdint>

#include "model/cpu/packed_weights.h"

namespace draftsmith::model {

// Rows of a tile.
inline constexpr int64_t kTileRows = 16;

// Computes sums[row][o] += sum_g scale[row,g] sum_i x[row,i] (w[o,i] - 128) over whole groups g of inputs i.
struct Int8Block {
  const uint8_t* weights;  // of a panel: [groups * 32,64,4], w; as many bytes again are asked for, not read
  int64_t groups;          // of 128 inputs
  const int8_t* x;         // [rows,width]
  int64_t width;           // bytes between rows
  int64_t rows;            // 1 to kTileRows
  const float* scales;     // of row r and group g at [r * of_row + g]
  const int32_t* offsets;  // likewise: -128 sum_i x[row,i]
  int64_t of_row;
  float (*sums)[kPanel];  // [rows,64]
};

// Returns whether the processor has AMX for int8 and the system lets the process use it. The first call asks for it.
bool has_tiles();

// The calling thread's tiles, while this object lives: no other code of the thread may use AMX meanwhile.
class Int8Tiles {
 public:
  Int8Tiles() = default;
  ~Int8Tiles();
  Int8Tiles(const Int8Tiles&) = delete;
  Int8Tiles& operator=(const Int8Tiles&) = delete;
  // Adds a block's products. has_tiles() must hold.
  void multiply(const Int8Block& block);

 private:
  void fit(int64_t rows);

  int64_t rows_ = 0;  // that the tiles have; 0: none yet
};

}  // namespace draftsmith::model
