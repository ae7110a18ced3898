#include "recipes/export/gguf/blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <c10/util/Half.h>
#include <c10/util/TypeCast.h>

namespace draftsmith::recipes {

std::string to_blocks(std::span<const float> values) {
  const size_t count = values.size() / kBlockValues;
  std::string blocks(count * kBlockBytes, '\0');
  for (size_t block = 0; block < count; ++block) {
    const auto numbers = values.subspan(block * kBlockValues, kBlockValues);
    float largest = 0;
    for (const float number : numbers) largest = std::max(largest, std::abs(number));
    const float factor = largest / 127;
    const float inverse = factor > 0 ? 1 / factor : 0;
    char* out = blocks.data() + block * kBlockBytes;
    const auto stored = c10::convert<c10::Half>(factor);  // made of __fp16 on AArch64, an explicit step there
    std::memcpy(out, &stored, sizeof(stored));
    for (size_t i = 0; i < numbers.size(); ++i) {
      out[sizeof(stored) + i] = static_cast<char>(static_cast<int8_t>(std::round(numbers[i] * inverse)));
    }
  }
  return blocks;
}

void from_blocks(std::span<const char> blocks, std::span<float> values) {
  const size_t count = blocks.size() / kBlockBytes;
  for (size_t block = 0; block < count; ++block) {
    const char* in = blocks.data() + block * kBlockBytes;
    c10::Half factor;
    std::memcpy(&factor, in, sizeof(factor));
    for (size_t i = 0; i < kBlockValues; ++i) {
      const auto integer = static_cast<int8_t>(in[sizeof(factor) + i]);
      values[block * kBlockValues + i] = static_cast<float>(factor) * static_cast<float>(integer);
    }
  }
}

}  // namespace draftsmith::recipes
