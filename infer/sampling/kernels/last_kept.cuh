// The last token that top-k or top-p keeps in a row, for warping.cu. A block a row.
//
// Both keep the first tokens in the order by falling logit, the lower id first among equals. The last kept token is the
// first at which a running sum reaches an aim: of ones for top-k, of weights for top-p. Tokens are summed in bins by
// their distance from the largest logit. The bin of the last kept token is known then, and the few tokens of that bin
// are compared with each other.
//
// Sums of bins are sums of integers, which do not depend on the order of threads; sums over bins are fp64 in a fixed
// order. So the last kept token is the CPU's unless a running sum lies within 1e-15 of top-p's mass.
#pragma once

#include "base/kernels/numbers.cuh"

namespace kernel {

// Place of a token in the order: the higher, the earlier.
using Place = unsigned long long;

constexpr int kIdBits = 19;  // vocabularies have at most 2^19 tokens
constexpr int kPlaceBits = 32 + kIdBits;
constexpr int kDigitBits = 11;
constexpr int kBins = 1 << kDigitBits;
constexpr int kListed = 1024;      // tokens that are compared with each other
constexpr int kPartBits = 13;      // of a token's units, so that the sums of all tokens' parts have 32 bits
constexpr float kBinsPerNat = 16;  // the least weight above 0 is in bin 1,392

__device__ inline Place place_of(float logit, int token) {
  const Word bits = __float_as_uint(logit + 0.0f);  // -0 becomes 0
  const Word key = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<Place>(key) << kIdBits | static_cast<Place>((1 << kIdBits) - 1 - token);
}

// The tokens of a row. weights [V]: exp of a warped logit less the largest, which is in (0,1] or 0; NaN for NaN.
template <class T>
struct WarpedRow {
  const T* logits;
  float* weights;
  int vocabulary;
  float highest;  // logit
  float scale;    // 1 / temperature

  __device__ float logit(int token) const { return widen(logits[token]); }
  __device__ float warped(int token) const { return (logit(token) - highest) * scale; }
};

// Returns the bin of a token of positive weight.
__device__ inline int bin_of(float warped) {
  return static_cast<int>(-warped * kBinsPerNat);
}

// Numbers that are summed: ones, or weights. A weight is an integer, its units, times a power of two that depends on
// its bin alone: weights of a bin differ by less than a factor of 1.07.
struct Measure {
  bool weights;

  // Returns an exponent that no weight of a bin is below, in fp32's form. The second bin is a margin for rounding.
  __device__ static int exponent(int bin) {
    return 127 + static_cast<int>(floorf(static_cast<float>(-bin - 2) * (1.44269504f / kBinsPerNat)));
  }
  // Returns the units of a token, below 2^25.
  __device__ Word units(float weight, int bin) const {
    const Word bits = __float_as_uint(weight);
    return weights ? ((bits & 0x7fffffu) | 0x800000u) << (static_cast<int>(bits >> 23) - exponent(bin)) : 1u;
  }
  __device__ double unit(int bin) const {
    return weights ? __hiloint2double((exponent(bin) - 23 - 127 + 1023) << 20, 0) : 1.0;
  }
};

// What the threads of a block share while they look for the last kept token.
struct Search {
  Word low[kBins];  // sums of units in two parts
  Word high[kBins];
  Place place[kListed];
  Word units[kListed];
  int listed;    // tokens that belong into the list
  int bin;       // where the running sum reaches the aim; kBins: nowhere
  double ahead;  // sum of the bins ahead of that one
  Place last;    // the last kept token

  __device__ void clear_bins() {
    __syncthreads();  // they have been read
    for (int i = static_cast<int>(threadIdx.x); i < kBins; i += static_cast<int>(blockDim.x)) low[i] = high[i] = 0;
    __syncthreads();
  }
  __device__ void add(int to, Word count) {
    atomicAdd(&low[to], count & ((1u << kPartBits) - 1));
    if (count >> kPartBits != 0) atomicAdd(&high[to], count >> kPartBits);
  }
  __device__ double sum_of(int of) const {
    return static_cast<double>((static_cast<Place>(high[of]) << kPartBits) + low[of]);
  }
};

// Returns the sum of the values of all threads before this one.
__device__ inline double sum_before(double value) {
  __shared__ double sums[32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  double through = value;
  for (int distance = 1; distance < 32; distance *= 2) {
    const double other = __shfl_up_sync(0xffffffffu, through, static_cast<unsigned>(distance));
    if (lane >= distance) through += other;
  }
  __syncthreads();  // the sums of the call before have been read
  if (lane == 31) sums[warp] = through;
  __syncthreads();
  double before = 0;
  KERNEL_UNROLL(1)
  for (int i = 0; i < warp; ++i) before += sums[i];
  const double previous = __shfl_up_sync(0xffffffffu, through, 1u);
  return lane > 0 ? before + previous : before;
}

// Tokens among which the last kept one is: all, then those of a bin, then those of it whose place begins with some
// bits.
struct Range {
  Place least;  // place of the last token that counts at all
  int bin = -1;
  double before = 0;  // running sum before the bin
  Place prefix = 0;
  int bits = kPlaceBits;  // of a place, after the prefix

  // Returns the bits after the prefix when the next ones belong to it.
  __device__ int next_bits() const { return bits > kDigitBits ? bits - kDigitBits : 0; }
};

// Finds the first bin at which the running sum reaches the aim, and adds the bins ahead of it to search.ahead. Returns
// whether there is one. Bins hold the tokens of the range.
__device__ inline bool find_bin(Search& search, Measure measure, const Range& range, double aim) {
  const int count = kBins / static_cast<int>(blockDim.x);  // of this thread
  const int begin = count * static_cast<int>(threadIdx.x);
  const auto sum_of = [&search, measure, of = range.bin](int bin) {
    return search.sum_of(bin) * measure.unit(of < 0 ? bin : of);
  };
  if (threadIdx.x == 0) search.bin = kBins;
  double own = 0;
  KERNEL_UNROLL(1)
  for (int i = 0; i < count; ++i) own += sum_of(begin + i);
  double ahead = search.ahead + sum_before(own);
  int found = kBins;
  double ahead_of_found = 0;
  KERNEL_UNROLL(1)
  for (int i = 0; i < count; ++i) {
    const double sum = sum_of(begin + i);
    // Never an empty bin, even if rounding takes the sum past the aim before it.
    if (sum > 0 && found == kBins && range.before + (ahead + sum) >= aim) {
      found = begin + i;
      ahead_of_found = ahead;
    }
    ahead += sum;
  }
  int least = found;
  for (int distance = 16; distance > 0; distance /= 2) {
    const int other = __shfl_xor_sync(0xffffffffu, least, distance);
    least = other < least ? other : least;
  }
  if (threadIdx.x % 32 == 0 && least < kBins) atomicMin(&search.bin, least);
  __syncthreads();
  if (found < kBins && found == search.bin) search.ahead = ahead_of_found;
  __syncthreads();
  return search.bin < kBins;
}

// Narrows a range to the bin that was found. Sums within a bin are exact: so one of its parts reaches the aim, too.
__device__ inline void narrow(Search& search, Range& range) {
  if (range.bin >= 0) {
    const int bits = range.next_bits();
    range.prefix = range.prefix << (range.bits - bits) | static_cast<Place>(kBins - 1 - search.bin);
    range.bits = bits;
    return;
  }
  range.bin = search.bin;
  range.before = search.ahead;
  __syncthreads();
  if (threadIdx.x == 0) search.ahead = 0;
}

// Calls work(place, units) for the tokens of a range within a bin.
template <class T, class Work>
__device__ void for_each_in(const WarpedRow<T>& row, Measure measure, const Range& range, const Work& work) {
  for (int i = static_cast<int>(threadIdx.x); i < row.vocabulary; i += static_cast<int>(blockDim.x)) {
    const float weight = row.weights[i];
    if (!(weight > 0) || bin_of(row.warped(i)) != range.bin) continue;
    const Place place = place_of(row.logit(i), i);
    if (place < range.least || place >> range.bits != range.prefix) continue;
    work(place, measure.units(weight, range.bin));
  }
}

// Lists the tokens of a range. Returns whether the list has room for all.
template <class T>
__device__ bool list_tokens(const WarpedRow<T>& row, Measure measure, const Range& range, Search& search) {
  __syncthreads();  // the list's length has been read
  if (threadIdx.x == 0) search.listed = 0;
  __syncthreads();
  for_each_in(row, measure, range, [&search](Place place, Word units) {
    const int i = atomicAdd(&search.listed, 1);
    if (i >= kListed) return;
    search.place[i] = place;
    search.units[i] = units;
  });
  __syncthreads();
  return search.listed <= kListed;
}

// Fills the bins with the tokens of a range, by the next bits of their places.
template <class T>
__device__ void fill_bins(const WarpedRow<T>& row, Measure measure, const Range& range, Search& search) {
  const int bits = range.next_bits();
  const Place digits = (Place(1) << (range.bits - bits)) - 1;
  search.clear_bins();
  for_each_in(row, measure, range, [&search, bits, digits](Place place, Word units) {
    search.add(kBins - 1 - static_cast<int>(place >> bits & digits), units);
  });
  __syncthreads();
}

// Finds the token of the list at which the running sum reaches the aim. It is the first if rounding took the sum past
// the aim before the list.
__device__ inline void choose_last(Search& search, double before, double unit, double aim) {
  for (int own = static_cast<int>(threadIdx.x); own < search.listed; own += static_cast<int>(blockDim.x)) {
    const Place place = search.place[own];
    Place sum = 0;
    KERNEL_UNROLL(4)
    for (int i = 0; i < search.listed; ++i) sum += search.place[i] >= place ? search.units[i] : 0u;
    const Place ahead = sum - search.units[own];
    const bool is_first = ahead == 0 || before + (search.ahead + static_cast<double>(ahead) * unit) < aim;
    if (is_first && before + (search.ahead + static_cast<double>(sum) * unit) >= aim) search.last = place;
  }
  __syncthreads();
}

// Returns the place of the first token, not after `least`, at which the running sum reaches the aim; `least` if there
// is none. Bins have been filled with all tokens from `least` on.
template <class T>
__device__ Place last_kept(const WarpedRow<T>& row, Measure measure, Place least, double aim, Search& search) {
  if (threadIdx.x == 0) search.ahead = 0;
  __syncthreads();
  Range range{least};
  while (true) {
    if (!find_bin(search, measure, range, aim)) return least;
    narrow(search, range);
    if (list_tokens(row, measure, range, search)) break;
    fill_bins(row, measure, range, search);
  }
  choose_last(search, range.before, measure.unit(range.bin), aim);
  return search.last;
}

}  // namespace kernel
