#include "base/bf16_pair_product.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <stdexcept>

#include <ATen/Parallel.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace draftsmith {

#ifdef __x86_64__

#define DRAFTSMITH_PAIRS [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]]

namespace {
namespace pairs {

// A word is a pair of bf16 numbers that follow each other along k.
using Word = uint32_t;

constexpr int64_t kLanes = 16;                   // words of a vector
constexpr int64_t kRows = 8;                     // of a tile: rows times vectors are sums in registers
constexpr int64_t kVectors = 3;                  // of a tile, at most
constexpr int64_t kColumns = kVectors * kLanes;  // of a tile, at most
constexpr int64_t kMostPairs = 128;              // of a block along k: its columns fit the first cache
constexpr __mmask16 kAll = 0xffff;
constexpr int64_t kFewestRowsOfThread = 4 * kRows;

// Memory of words that begins with a cache line. Not initialised.
class Words {
 public:
  explicit Words(int64_t count) : memory_(std::make_unique_for_overwrite<Word[]>(static_cast<size_t>(count + kLanes))) {
    void* begin = memory_.get();
    size_t space = static_cast<size_t>(count + kLanes) * sizeof(Word);
    data_ = static_cast<Word*>(std::align(64, static_cast<size_t>(count) * sizeof(Word), begin, space));
  }
  Word* data() const { return data_; }

 private:
  std::unique_ptr<Word[]> memory_;
  Word* data_;
};

__mmask16 first_lanes(int64_t count) {
  return static_cast<__mmask16>(count >= kLanes ? 0xffff : (1 << std::max<int64_t>(0, count)) - 1);
}

// Returns words of two rows' numbers, the upper row's first; `second` is null where k is odd.
DRAFTSMITH_PAIRS __m512i interleaved(const uint16_t* first, const uint16_t* second, __mmask16 lanes) {
  const __m512i low = _mm512_maskz_cvtepu16_epi32(kAll, _mm256_maskz_loadu_epi16(lanes, first));
  if (second == nullptr) return low;
  const __m512i high = _mm512_maskz_cvtepu16_epi32(kAll, _mm256_maskz_loadu_epi16(lanes, second));
  return _mm512_or_si512(low, _mm512_maskz_slli_epi32(kAll, high, 16));
}

// Where the words of 16 rows of 16 are taken from to exchange rows and columns, in four steps.
struct Exchange {
  std::array<std::array<Word, kLanes>, 4> upper{}, lower{};

  constexpr Exchange() {
    for (size_t step = 0; step < 4; ++step) {
      const Word apart = 1U << step;
      for (Word lane = 0; lane < kLanes; ++lane) {
        const bool other = (lane & apart) != 0;
        upper[step][lane] = other ? (lane - apart) + 16 : lane;
        lower[step][lane] = other ? lane + 16 : lane + apart;
      }
    }
  }
};
constexpr Exchange kExchange;

// 16 vectors.
struct Square {
  __m512i rows[kLanes];
};

// Exchanges rows and columns.
DRAFTSMITH_PAIRS void exchange(Square& square) {
#pragma GCC unroll 4
  for (size_t step = 0; step < 4; ++step) {
    const __m512i upper = _mm512_loadu_si512(kExchange.upper[step].data());
    const __m512i lower = _mm512_loadu_si512(kExchange.lower[step].data());
    const size_t apart = size_t{1} << step;
#pragma GCC unroll 16
    for (size_t i = 0; i < kLanes; ++i) {
      if ((i & apart) != 0) continue;
      const __m512i first = square.rows[i], second = square.rows[i + apart];
      square.rows[i] = _mm512_permutex2var_epi32(first, upper, second);
      square.rows[i + apart] = _mm512_permutex2var_epi32(first, lower, second);
    }
  }
}

// Numbers k of a block, the first of them even.
struct Block {
  int64_t begin, end;
  int64_t pairs() const { return (end - begin + 1) / 2; }
};

// Writes words of `columns` rows in memory as columns, [pairs, width]: matrices that are stored [n,k].
DRAFTSMITH_PAIRS void pack_rows(RowsInMemory<const uint16_t> from, int64_t columns, Block block, int64_t width,
                                Word* to) {
  for (int64_t column = 0; column < width; column += kLanes) {
    for (int64_t pair = 0; pair < block.pairs(); pair += kLanes) {
      const int64_t numbers = block.end - block.begin - 2 * pair;
      const auto lanes = static_cast<__mmask32>(numbers >= 32 ? 0xffffffff : (uint32_t{1} << numbers) - 1);
      Square square;
      for (int64_t i = 0; i < kLanes; ++i) {
        const uint16_t* const row = from.data + (column + i) * from.stride + block.begin + 2 * pair;
        square.rows[i] = column + i < columns ? _mm512_maskz_loadu_epi16(lanes, row) : _mm512_setzero_si512();
      }
      exchange(square);
      const int64_t count = std::min(kLanes, block.pairs() - pair);
      for (int64_t i = 0; i < count; ++i) {
        _mm512_store_si512(to + (pair + i) * width + column, square.rows[i]);
      }
    }
  }
}

// Writes words of `columns` columns in memory, [pairs, width]: matrices that are stored [k,n].
DRAFTSMITH_PAIRS void pack_columns(RowsInMemory<const uint16_t> from, int64_t columns, Block block, int64_t width,
                                   Word* to) {
  for (int64_t pair = 0; pair < block.pairs(); ++pair) {
    const int64_t k = block.begin + 2 * pair;
    const uint16_t* const first = from.data + k * from.stride;
    const uint16_t* const second = k + 1 < block.end ? first + from.stride : nullptr;
    for (int64_t column = 0; column < width; column += kLanes) {
      const uint16_t* const next = second == nullptr ? nullptr : second + column;
      _mm512_store_si512(to + pair * width + column, interleaved(first + column, next, first_lanes(columns - column)));
    }
  }
}

// Writes the words of a, [panels of kRows rows, pairs, kRows], with rows of zeros behind the last one. a is stored
// [k,m] if `transposed`, else [m,k].
DRAFTSMITH_PAIRS void pack_panels(RowsInMemory<const uint16_t> a, bool transposed, int64_t rows, Block block,
                                  Word* to) {
  const int64_t pairs = block.pairs(), panel = pairs * kRows;
  const int64_t width = (rows + kLanes - 1) / kLanes * kLanes;
  const Words words(pairs * kLanes);
  for (int64_t row = 0; row < width; row += kLanes) {
    const int64_t columns = rows - row;
    if (transposed) {
      pack_columns({a.data + row, a.stride}, columns, block, kLanes, words.data());
    } else {
      pack_rows({a.data + row * a.stride, a.stride}, columns, block, kLanes, words.data());
    }
    for (int64_t half = 0; half < 2 && row + half * kRows < rows; ++half) {
      Word* const next = to + (row / kRows + half) * panel;
      for (int64_t pair = 0; pair < pairs; ++pair) {
        std::memcpy(next + pair * kRows, words.data() + pair * kLanes + half * kRows, kRows * sizeof(Word));
      }
    }
  }
}

// A tile of the result: its sums are factor times the products, and what is in memory if `add`.
struct Tile {
  const Word* a;  // a panel
  const Word* b;  // [pairs, vectors * kLanes]
  int64_t pairs, rows, columns;
  float factor;
  bool add;
};

template <int64_t kUsed>
DRAFTSMITH_PAIRS void multiply_tile(const Tile& tile, RowsInMemory<float> out) {
  __m512 sums[kRows][kUsed];
#pragma GCC unroll 8
  for (auto& row : sums) {
#pragma GCC unroll 3
    for (__m512& sum : row) sum = _mm512_setzero_ps();
  }
  for (int64_t pair = 0; pair < tile.pairs; ++pair) {
    __m512bh columns[kUsed];
#pragma GCC unroll 3
    for (int64_t j = 0; j < kUsed; ++j) {
      columns[j] = reinterpret_cast<__m512bh>(_mm512_load_si512(tile.b + (pair * kUsed + j) * kLanes));
    }
    const Word* const rows = tile.a + pair * kRows;
#pragma GCC unroll 8
    for (int64_t i = 0; i < kRows; ++i) {
      const auto number = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(rows[i])));
#pragma GCC unroll 3
      for (int64_t j = 0; j < kUsed; ++j) sums[i][j] = _mm512_dpbf16_ps(sums[i][j], number, columns[j]);
    }
  }
  const __m512 factor = _mm512_set1_ps(tile.factor);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
    if (i >= tile.rows) break;
#pragma GCC unroll 3
    for (int64_t j = 0; j < kUsed; ++j) {
      const __mmask16 lanes = first_lanes(tile.columns - j * kLanes);
      float* const to = out.data + i * out.stride + j * kLanes;
      const __m512 before = tile.add ? _mm512_maskz_loadu_ps(lanes, to) : _mm512_setzero_ps();
      _mm512_mask_storeu_ps(to, lanes, _mm512_fmadd_ps(sums[i][j], factor, before));
    }
  }
}

void multiply_tile(const Tile& tile, RowsInMemory<float> out) {
  switch ((tile.columns + kLanes - 1) / kLanes) {
    case 1:
      return multiply_tile<1>(tile, out);
    case 2:
      return multiply_tile<2>(tile, out);
    default:
      return multiply_tile<kVectors>(tile, out);
  }
}

// Computes rows of the product in one thread.
void multiply_rows(const MatrixProduct& product, RowsInMemory<const uint16_t> a, RowsInMemory<const uint16_t> b,
                   RowsInMemory<float> out) {
  const int64_t panels = (product.m + kRows - 1) / kRows;
  const int64_t most_pairs = std::min(kMostPairs, (product.k + 1) / 2);
  const Words rows(panels * kRows * most_pairs), columns(most_pairs * kColumns);
  // A product without numbers is zeros.
  for (int64_t begin = 0; begin < std::max<int64_t>(1, product.k); begin += 2 * kMostPairs) {
    const Block block{begin, std::min(product.k, begin + 2 * kMostPairs)};
    pack_panels(a, product.transpose_a, product.m, block, rows.data());
    for (int64_t column = 0; column < product.n; column += kColumns) {
      const int64_t used = std::min(kColumns, product.n - column);
      const int64_t width = (used + kLanes - 1) / kLanes * kLanes;
      if (product.transpose_b) {
        pack_rows({b.data + column * b.stride, b.stride}, used, block, width, columns.data());
      } else {
        pack_columns({b.data + column, b.stride}, used, block, width, columns.data());
      }
      for (int64_t panel = 0; panel < panels; ++panel) {
        const int64_t row = panel * kRows;
        multiply_tile({.a = rows.data() + row * block.pairs(),
                       .b = columns.data(),
                       .pairs = block.pairs(),
                       .rows = product.m - row,
                       .columns = used,
                       .factor = static_cast<float>(product.factor),
                       .add = product.add || begin > 0},
                      {out.data + row * out.stride + column, out.stride});
      }
    }
  }
}

}  // namespace pairs
}  // namespace

bool has_bf16_pairs() {
  static const bool has = __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                          __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  return has;
}

void multiply_bf16_pairs(const MatrixProduct& product, RowsInMemory<const uint16_t> a, RowsInMemory<const uint16_t> b,
                         RowsInMemory<float> out) {
  at::parallel_for(0, product.m, pairs::kFewestRowsOfThread, [&](int64_t begin, int64_t end) {
    MatrixProduct rows = product;
    rows.m = end - begin;
    pairs::multiply_rows(rows, {a.data + begin * (product.transpose_a ? 1 : a.stride), a.stride}, b,
                         {out.data + begin * out.stride, out.stride});
  });
}

#undef DRAFTSMITH_PAIRS

#else

bool has_bf16_pairs() {
  return false;
}

void multiply_bf16_pairs(const MatrixProduct& /*product*/, RowsInMemory<const uint16_t> /*a*/,
                         RowsInMemory<const uint16_t> /*b*/, RowsInMemory<float> /*out*/) {
  throw std::logic_error("this processor has no products of bf16");
}

#endif

}  // namespace draftsmith
