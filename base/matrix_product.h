// A product of matrices in memory, by whichever kernel.
#pragma once

#include <cstdint>

namespace draftsmith {

// Rows in memory, the first of each `stride` numbers after the one before.
template <class T>
struct RowsInMemory {
  T* data;
  int64_t stride;
};

// out [m,n] = factor a b + (add ? out : 0), in the order of rows.
struct MatrixProduct {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;  // a is stored [k,m], b [n,k]
  double factor = 1;
  bool add = false;
};

}  // namespace draftsmith
