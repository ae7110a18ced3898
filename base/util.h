// Small things without a subject of their own: embedded texts, statistics, lists, variants, loops for vector units.
#pragma once

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

// Compiles a function for several vector widths, of which the processor takes the widest. DRAFTSMITH_AVX2: no AVX-512.
#if defined(__x86_64__) && defined(DRAFTSMITH_AVX2)
#define DRAFTSMITH_VECTOR_CODE __attribute__((target_clones("arch=x86-64-v3", "default")))
#elif defined(__x86_64__)
#define DRAFTSMITH_VECTOR_CODE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define DRAFTSMITH_VECTOR_CODE
#endif
// Marks a function that vectorised functions call, so that it is compiled with each of them.
#define DRAFTSMITH_INLINE inline __attribute__((always_inline))

namespace draftsmith {

// Text that CMake embeds in the program, by the name of its file (cmake/texts.cmake).
struct EmbeddedText {
  std::string_view name;
  std::string_view text;
};

// Returns the median, the upper one of two; `values` must not be empty.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Returns the number that the whole text is, if it is one.
template <class T>
std::optional<T> parse_whole(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

// Appends `value` unless the list contains it.
template <class T>
void add_new(std::vector<T>& values, const T& value) {
  if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
}

// Keeps the values of the given rows, in the given order. No row may be given twice, unless values are numbers.
template <class T>
void keep_rows(std::vector<T>& values, std::span<const int64_t> rows) {
  std::vector<T> kept;
  kept.reserve(rows.size());
  for (const int64_t row : rows) kept.push_back(std::move(values.at(static_cast<size_t>(row))));
  values = std::move(kept);
}

// Returns what a function or a member gives for each value.
template <class Values, class Given>
auto from_each(const Values& values, Given given) {
  std::vector<std::decay_t<std::invoke_result_t<Given&, decltype(*values.begin())>>> all;
  for (const auto& value : values) all.push_back(std::invoke(given, value));
  return all;
}

// One visitor of a std::variant from a function for each of its types.
//
//   std::visit(Overload{[](int number) { ... }, [](const std::string& text) { ... }}, value);

template <class... F>
struct Overload : F... {
  using F::operator()...;
};
template <class... F>
Overload(F...) -> Overload<F...>;

// Replaces x, a number or a vector V with as many unsigned I, by exp(x) for x <= 0 to 2 ulp (Cephes' expf polynomial);
// exactly 0 below -87, NaN for NaN.
template <class V, class I>
DRAFTSMITH_INLINE void exponentiate(V& x) {
  const V clamped = x < -87.0F ? V{} - 87.0F : x;  // NaN stays
  // Numbers of kWhole's size have no places behind the point: the sum rounds, and its last bits are the integer n. A
  // loop with std::floor() would not become vector code.
  constexpr float kWhole = 12582912.0F;  // 1.5 * 2^23
  const V rounded = clamped * 1.44269504088896341F + kWhole;
  const V n = rounded - kWhole;
  const V r = (clamped - n * 0.693359375F) + n * 2.12194440e-4F;
  V p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const I power = (__builtin_bit_cast(I, rounded) + 127) << 23;
  x = x < -87.0F ? V{} : p * __builtin_bit_cast(V, power);
}

// Returns exp(x) for x <= 0, as exponentiate().
DRAFTSMITH_INLINE float exponential(float x) {
  exponentiate<float, uint32_t>(x);
  return x;
}

DRAFTSMITH_INLINE double exponential(double x) {
  return std::exp(x);
}

// Returns the number of a bf16 word.
DRAFTSMITH_INLINE float widened_bf16(uint16_t word) {
  return std::bit_cast<float>(uint32_t{word} << 16);
}

// Returns x as a bf16 word, rounded to nearest even, as at::BFloat16 does.
DRAFTSMITH_INLINE uint16_t narrowed_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded);
}

// Eight numbers, in memory or in a register of AVX2.
using EightFloats [[gnu::vector_size(32), gnu::aligned(4), gnu::may_alias]] = float;

// Returns the sum of term(0) to term(count - 1), by partial sums of a vector: the order depends on `count` alone.
// Unrolled, the partial sums stay in registers; else each would visit the stack.
template <class Term>
DRAFTSMITH_INLINE float sum_in_lanes(int64_t count, const Term& term) {
  constexpr int kLanes = 16;
  float partial[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma GCC unroll 16
    for (int64_t j = 0; j < kLanes; ++j) partial[j] += term(i + j);
  }
  const auto* halves = reinterpret_cast<const EightFloats*>(partial);
  const auto eight = halves[0] + halves[1];
  const auto four =
      __builtin_shufflevector(eight, eight, 0, 1, 2, 3) + __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  float sum = (four[0] + four[2]) + (four[1] + four[3]);
  for (; i < count; ++i) sum += term(i);
  return sum;
}

// Returns tanh(x) by exponential(), as vector code.
DRAFTSMITH_INLINE float tanh_of(float x) {
  const float e = exponential((x < 0 ? x : -x) * 2);
  const float size = (1 - e) / (1 + e);
  return x < 0 ? -size : size;
}

// Returns c tanh(x / c).
DRAFTSMITH_INLINE float soft_cap(float x, float c) {
  return c * tanh_of(x * (1 / c));
}

}  // namespace draftsmith
