// Q8_0, llama.cpp's blocks of 32 numbers: a factor in fp16 and 32 integers of 8 bits, 34 bytes in all.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace draftsmith::recipes {

constexpr int64_t kBlockValues = 32;
constexpr int64_t kBlockBytes = 34;

// Returns the blocks of numbers, whose count is a multiple of 32. The factor is the largest magnitude / 127 rounded to
// fp16; integers are rounded by the factor before it is, halves away from zero, as llama.cpp does.
std::string to_blocks(std::span<const float> values);

// Writes the numbers of blocks into `values`, 32 for each 34 bytes.
void from_blocks(std::span<const char> blocks, std::span<float> values);

}  // namespace draftsmith::recipes
