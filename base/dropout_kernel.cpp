#include "base/dropout_kernel.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include <c10/util/TypeCast.h>

#include "base/aten.h"

namespace draftsmith::dropout_detail {

namespace {

// Groups drawn at a time. Their words (8 KB) stay in the first-level cache until they are used.
constexpr int64_t kChunk = 32;
constexpr int64_t kWordsOfGroup = 4 * kLanes;
using ChunkWords = std::array<uint32_t, static_cast<size_t>(kChunk* kWordsOfGroup)>;

// Computes philox4x32 (base/random.h) of 16 blocks at once. Inlined into a function for each instruction set.
[[gnu::always_inline]] inline void draw_group(uint32_t group, const DropoutKey& key, uint32_t* words) {
  constexpr auto kCount = static_cast<uint32_t>(kLanes);
  uint32_t a[kCount], b[kCount], c[kCount], d[kCount];
  for (uint32_t lane = 0; lane < kCount; ++lane) {
    a[lane] = group * kCount + lane;
    b[lane] = key.site;
    c[lane] = static_cast<uint32_t>(key.step);
    d[lane] = static_cast<uint32_t>(key.step >> 32);
  }
  auto key0 = static_cast<uint32_t>(key.seed);
  auto key1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (uint32_t lane = 0; lane < kCount; ++lane) {
      const uint64_t product0 = uint64_t{0xd2511f53} * a[lane];
      const uint64_t product1 = uint64_t{0xcd9e8d57} * c[lane];
      const uint32_t next_a = static_cast<uint32_t>(product1 >> 32) ^ b[lane] ^ key0;
      const uint32_t next_c = static_cast<uint32_t>(product0 >> 32) ^ d[lane] ^ key1;
      b[lane] = static_cast<uint32_t>(product1);
      d[lane] = static_cast<uint32_t>(product0);
      a[lane] = next_a;
      c[lane] = next_c;
    }
    key0 += 0x9e3779b9;
    key1 += 0xbb67ae85;
  }
  for (uint32_t lane = 0; lane < kCount; ++lane) {
    words[lane] = a[lane];
    words[kCount + lane] = b[lane];
    words[2 * kCount + lane] = c[lane];
    words[3 * kCount + lane] = d[lane];
  }
}

[[gnu::always_inline]] inline void draw_groups(int64_t first, int64_t count, const DropoutKey& key, uint32_t* words) {
  for (int64_t i = 0; i < count; ++i) draw_group(static_cast<uint32_t>(first + i), key, words + i * kWordsOfGroup);
}

// Returns the number of a bf16 tensor's word.
[[gnu::always_inline]] inline float widened(uint16_t word) {
  return std::bit_cast<float>(uint32_t{word} << 16);
}

// Returns x as bf16, rounded to nearest even, as at::BFloat16 does.
[[gnu::always_inline]] inline uint16_t narrowed(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded);
}

// Computes a whole group, without branches: of fp32, or of bf16 as words.
[[gnu::always_inline]] inline void apply_whole_group(const float* in, float* out, const uint32_t* words,
                                                     uint32_t threshold) {
  const auto scale = static_cast<float>(scale_of(threshold));
  const auto kept = [&](float x, uint32_t bits) {
    const uint32_t all = bits < threshold ? 0 : ~uint32_t{0};
    return std::bit_cast<float>(std::bit_cast<uint32_t>(x * scale) & all);
  };
  for (int64_t i = 0; i < kWordsOfGroup; ++i) out[i] = kept(in[i], words[i] & 0xffff);
  for (int64_t i = 0; i < kWordsOfGroup; ++i) out[kWordsOfGroup + i] = kept(in[kWordsOfGroup + i], words[i] >> 16);
}

[[gnu::always_inline]] inline void apply_whole_group(const uint16_t* in, uint16_t* out, const uint32_t* words,
                                                     uint32_t threshold) {
  const auto scale = static_cast<float>(scale_of(threshold));
  const auto kept = [&](uint16_t x, uint32_t bits) {
    const uint32_t all = bits < threshold ? 0 : ~uint32_t{0};
    return static_cast<uint16_t>(narrowed(widened(x) * scale) & all);
  };
  for (int64_t i = 0; i < kWordsOfGroup; ++i) out[i] = kept(in[i], words[i] & 0xffff);
  for (int64_t i = 0; i < kWordsOfGroup; ++i) out[kWordsOfGroup + i] = kept(in[kWordsOfGroup + i], words[i] >> 16);
}

template <class T>
[[gnu::always_inline]] inline void apply_groups(const T* in, T* out, int64_t count, const uint32_t* words,
                                                uint32_t threshold) {
  for (int64_t i = 0; i < count; ++i)
    apply_whole_group(in + i * kGroup, out + i * kGroup, words + i * kWordsOfGroup, threshold);
}

// Work on some groups, compiled for a set of instructions.
struct GroupCode {
  void (*draw)(int64_t first, int64_t count, const DropoutKey& key, uint32_t* words);
  void (*apply)(const float* in, float* out, int64_t count, const uint32_t* words, uint32_t threshold);
  void (*apply_bf16)(const uint16_t* in, uint16_t* out, int64_t count, const uint32_t* words, uint32_t threshold);
};

void draw_generic(int64_t first, int64_t count, const DropoutKey& key, uint32_t* words) {
  draw_groups(first, count, key, words);
}

template <class T>
void apply_generic(const T* in, T* out, int64_t count, const uint32_t* words, uint32_t threshold) {
  apply_groups(in, out, count, words, threshold);
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define DRAFTSMITH_AVX512 [[gnu::target("avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512")]]

DRAFTSMITH_AVX512 void draw_avx512(int64_t first, int64_t count, const DropoutKey& key, uint32_t* words) {
  draw_groups(first, count, key, words);
}

template <class T>
DRAFTSMITH_AVX512 void apply_avx512(const T* in, T* out, int64_t count, const uint32_t* words, uint32_t threshold) {
  apply_groups(in, out, count, words, threshold);
}

GroupCode group_code() {
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return avx512 ? GroupCode{draw_avx512, apply_avx512<float>, apply_avx512<uint16_t>}
                : GroupCode{draw_generic, apply_generic<float>, apply_generic<uint16_t>};
}
#else
GroupCode group_code() {
  return {draw_generic, apply_generic<float>, apply_generic<uint16_t>};
}
#endif

// Computes the first `count` of a group's 128 elements.
template <class T>
void apply_group(const T* in, T* out, int64_t count, const uint32_t* words, uint32_t threshold) {
  // Types of 16 bits are scaled in fp32, in which their product is computed anyway.
  using Factor = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto scale = static_cast<Factor>(scale_of(threshold));
  const auto value = [&](int64_t i, uint32_t bits) {
    // c10::convert: on AArch64, a half is made of __fp16, to which -Wconversion wants an explicit step.
    return c10::convert<T>(bits < threshold ? Factor{0} : static_cast<Factor>(in[i]) * scale);
  };
  const int64_t low = std::min(count, kWordsOfGroup);
  for (int64_t i = 0; i < low; ++i) out[i] = value(i, words[i] & 0xffff);
  for (int64_t i = low; i < count; ++i) out[i] = value(i, words[i - kWordsOfGroup] >> 16);
}

}  // namespace

uint32_t threshold_of(double probability) {
  return static_cast<uint32_t>(std::lround(probability * 65536));
}

double scale_of(uint32_t threshold) {
  return 65536.0 / (65536.0 - threshold);
}

template <class T>
void apply_dropout(const T* in, T* out, int64_t count, int64_t first_group, uint32_t threshold, const DropoutKey& key) {
  const GroupCode code = group_code();
  ChunkWords words;
  for (int64_t done = 0; done < count;) {
    const int64_t groups = std::min(kChunk, (count - done + kGroup - 1) / kGroup);
    code.draw(first_group + done / kGroup, groups, key, words.data());
    int64_t group = 0;
    if constexpr (std::is_same_v<T, float>) {
      group = std::min(groups, (count - done) / kGroup);
      code.apply(in + done, out + done, group, words.data(), threshold);
      done += group * kGroup;
    }
    if constexpr (std::is_same_v<T, at::BFloat16>) {
      static_assert(sizeof(at::BFloat16) == sizeof(uint16_t) && std::is_trivially_copyable_v<at::BFloat16>);
      group = std::min(groups, (count - done) / kGroup);
      code.apply_bf16(reinterpret_cast<const uint16_t*>(in + done), reinterpret_cast<uint16_t*>(out + done), group,
                      words.data(), threshold);
      done += group * kGroup;
    }
    for (; group < groups; ++group, done += kGroup) {
      apply_group(in + done, out + done, std::min(kGroup, count - done), words.data() + group * kWordsOfGroup,
                  threshold);
    }
  }
}

template void apply_dropout(const float*, float*, int64_t, int64_t, uint32_t, const DropoutKey&);
template void apply_dropout(const double*, double*, int64_t, int64_t, uint32_t, const DropoutKey&);
template void apply_dropout(const at::BFloat16*, at::BFloat16*, int64_t, int64_t, uint32_t, const DropoutKey&);
template void apply_dropout(const at::Half*, at::Half*, int64_t, int64_t, uint32_t, const DropoutKey&);

}  // namespace draftsmith::dropout_detail
