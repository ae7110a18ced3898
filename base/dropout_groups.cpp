#include "base/dropout_groups.h"

#include <bit>
#include <type_traits>

#include "base/util.h"

namespace draftsmith::dropout_detail {
namespace {

// Computes philox4x32 (base/random.h) of 16 blocks at once.
DRAFTSMITH_INLINE void draw_group(uint32_t group, const DropoutKey& key, uint32_t* words) {
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

// Computes a whole group, without branches: of fp32, or of bf16 as words.
template <class T>
DRAFTSMITH_INLINE void apply_whole_group(const T* in, T* out, const uint32_t* words, uint32_t threshold) {
  const auto scale = static_cast<float>(scale_of(threshold));
  const auto kept = [&](T x, uint32_t bits) {
    const uint32_t all = bits < threshold ? 0 : ~uint32_t{0};
    if constexpr (std::is_same_v<T, float>) {
      return std::bit_cast<float>(std::bit_cast<uint32_t>(x * scale) & all);
    } else {
      return static_cast<uint16_t>(narrowed_bf16(widened_bf16(x) * scale) & all);
    }
  };
  for (int64_t i = 0; i < kWordsOfGroup; ++i) out[i] = kept(in[i], words[i] & 0xffff);
  for (int64_t i = 0; i < kWordsOfGroup; ++i) out[kWordsOfGroup + i] = kept(in[kWordsOfGroup + i], words[i] >> 16);
}

}  // namespace

double scale_of(uint32_t threshold) {
  return 65536.0 / (65536.0 - threshold);
}

DRAFTSMITH_VECTOR_CODE void draw_groups(int64_t first, int64_t count, const DropoutKey& key, uint32_t* words) {
  for (int64_t i = 0; i < count; ++i) draw_group(static_cast<uint32_t>(first + i), key, words + i * kWordsOfGroup);
}

DRAFTSMITH_VECTOR_CODE
void apply_groups(const float* in, float* out, int64_t count, const uint32_t* words, uint32_t threshold) {
  for (int64_t i = 0; i < count; ++i)
    apply_whole_group(in + i * kGroup, out + i * kGroup, words + i * kWordsOfGroup, threshold);
}

DRAFTSMITH_VECTOR_CODE
void apply_groups(const uint16_t* in, uint16_t* out, int64_t count, const uint32_t* words, uint32_t threshold) {
  for (int64_t i = 0; i < count; ++i)
    apply_whole_group(in + i * kGroup, out + i * kGroup, words + i * kWordsOfGroup, threshold);
}

}  // namespace draftsmith::dropout_detail
