// Dropout's random bits and masks on CPUs, for 128 elements (16 Philox blocks) at a time, in loops that the compiler
// vectorises for each set of instructions.
#pragma once

#include <cstdint>

namespace draftsmith {

// Key of one mask in a training run: the micro-batch and the place in the model. Masks of different keys are
// independent.
struct DropoutKey {
  uint64_t seed = 0;
  uint64_t step = 0;  // micro-batch counter
  uint32_t site = 0;  // running number of the dropout within the forward pass
};

namespace dropout_detail {

// Number of blocks that are drawn together, and number of elements that they decide: two for each 32-bit word. In a
// group, element e = 64 half + 16 word + lane is decided by the low (half 0) or high 16 bits of word `word` of block
// 16 group + lane.
constexpr int64_t kLanes = 16;
constexpr int64_t kGroup = 8 * kLanes;
constexpr int64_t kWordsOfGroup = 4 * kLanes;

// Returns 1 / (1 - threshold / 2^16).
double scale_of(uint32_t threshold);

// Writes the words of `count` groups, kWordsOfGroup each.
void draw_groups(int64_t first, int64_t count, const DropoutKey& key, uint32_t* words);

// Writes whole groups: in * scale, or 0 for elements whose bits are below the threshold. Words of 16 bits are bf16.
void apply_groups(const float* in, float* out, int64_t count, const uint32_t* words, uint32_t threshold);
void apply_groups(const uint16_t* in, uint16_t* out, int64_t count, const uint32_t* words, uint32_t threshold);

}  // namespace dropout_detail
}  // namespace draftsmith
