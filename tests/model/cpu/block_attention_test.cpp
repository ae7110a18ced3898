// Attention in blocks against sums in fp64, and the independence of a query from the others.
#include "model/cpu/block_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace draftsmith::model {
namespace {

// Sizes of a test, and its numbers.
struct BlockCase {
  int64_t tokens = 1;
  int64_t keys = 1;
  int64_t prefix = 1;
  bool growing = false;
  int64_t width = 64;
  int64_t heads = 1;
  bool biased = true;
  double scale = 1;

  std::vector<float> query = {}, key = {}, value = {}, bias = {};

  void fill(unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::vector<float>* numbers : {&query, &key, &value, &bias}) numbers->clear();
    for (int64_t i = 0; i < tokens * heads * width; ++i) query.push_back(normal(random));
    for (int64_t i = 0; i < keys * width; ++i) key.push_back(normal(random));
    for (int64_t i = 0; i < keys * width; ++i) value.push_back(normal(random));
    for (int64_t i = 0; i < heads * (tokens + keys); ++i) bias.push_back(normal(random));
  }
  int64_t seen(int64_t t) const { return prefix + (growing ? t : 0); }
  float bias_of(int64_t head, int64_t t, int64_t s) const {
    return biased ? bias[static_cast<size_t>(head * (tokens + keys) + tokens + s - t)] : 0.0F;
  }

  BlockHead head(std::vector<float>& context) const {
    context.assign(query.size(), -1);
    return {.query = query.data(),
            .keys = key.data(),
            .values = value.data(),
            .bias = biased ? bias.data() + tokens : nullptr,
            .context = context.data(),
            .heads = heads,
            .width = width,
            .prefix = prefix,
            .growing = growing,
            .query_stride = heads * width,
            .key_stride = width,
            .context_stride = heads * width,
            .bias_stride = tokens + keys,
            .scale = scale};
  }
  std::vector<float> context(int64_t part) const {
    std::vector<float> out;
    const BlockHead all = head(out);
    for (int64_t begin = 0; begin < tokens; begin += part) attend_blocks(all, begin, std::min(begin + part, tokens));
    return out;
  }
  std::vector<double> expected() const;
};

std::vector<double> BlockCase::expected() const {
  std::vector<double> out(query.size(), 0.0);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const auto first = static_cast<size_t>((t * heads + h) * width);
      std::vector<double> weights;
      double highest = -std::numeric_limits<double>::infinity(), total = 0;
      for (int64_t s = 0; s < seen(t); ++s) {
        double score = 0;
        for (int64_t i = 0; i < width; ++i) {
          score += static_cast<double>(query[first + static_cast<size_t>(i)]) * key[static_cast<size_t>(s * width + i)];
        }
        weights.push_back(scale * score + bias_of(h, t, s));
        highest = std::max(highest, weights.back());
      }
      for (double& weight : weights) total += weight = std::exp(weight - highest);
      for (size_t s = 0; s < weights.size(); ++s) {
        for (size_t i = 0; i < static_cast<size_t>(width); ++i) {
          out[first + i] += weights[s] / total * value[s * static_cast<size_t>(width) + i];
        }
      }
    }
  }
  return out;
}

void expect_near(const std::vector<float>& found, const std::vector<double>& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 2e-5) << what << " at " << i;
}

std::string name(const BlockCase& in) {
  return std::to_string(in.tokens) + " tokens, " + std::to_string(in.keys) + " keys, K " + std::to_string(in.width) +
         ", " + std::to_string(in.heads) + " heads";
}

TEST(BlockAttention, EqualsSumsInFp64ForEverySize) {
  unsigned seed = 0;
  for (const int64_t width : {1, 8, 64, 80, 128}) {
    for (const int64_t keys : {1, 2, 15, 63, 64, 65, 255, 256, 257, 600}) {
      for (const int64_t tokens : {1, 5, 23, 24, 25, 70}) {
        BlockCase in{.tokens = tokens, .keys = keys, .prefix = keys, .width = width};
        in.biased = seed % 3 != 0;
        in.scale = seed % 2 == 0 ? 1.0 : 1 / std::sqrt(static_cast<double>(width));
        in.fill(++seed);
        expect_near(in.context(tokens), in.expected(), name(in));
      }
    }
  }
}

TEST(BlockAttention, HidesLaterKeysOfGrowingPrefixes) {
  unsigned seed = 100;
  for (const int64_t prefix : {0, 1, 50, 200, 255, 256, 257, 500}) {
    BlockCase in{.tokens = 130, .keys = prefix + 130, .prefix = prefix, .growing = true, .width = 16, .heads = 2};
    in.fill(++seed);
    // Nothing may come from the slot behind the last visible one.
    const auto hidden = static_cast<size_t>(in.seen(in.tokens - 1));
    ASSERT_EQ(hidden + 1, static_cast<size_t>(in.keys));
    for (size_t i = 0; i < 16; ++i) {
      in.key[hidden * 16 + i] = in.value[hidden * 16 + i] = std::numeric_limits<float>::quiet_NaN();
    }
    expect_near(in.context(in.tokens), in.expected(), name(in));
  }
}

TEST(BlockAttention, GivesAQueryTheSameBitsInEveryPart) {
  for (const bool growing : {false, true}) {
    BlockCase in{.tokens = 300, .keys = 700, .prefix = growing ? 400 : 700, .growing = growing, .heads = 2};
    in.fill(7);
    const std::vector<float> whole = in.context(in.tokens);
    for (const int64_t part : {1, 7, 96, 299}) EXPECT_EQ(in.context(part), whole) << part;
  }
}

TEST(BlockAttention, TakesScoresThatGrowFromBlockToBlock) {
  // The highest score rises, and falls, by more than a weight can hold.
  BlockCase in{.tokens = 3, .keys = 900, .prefix = 900, .width = 4, .biased = false};
  in.fill(11);
  for (size_t s = 0; s < 900; ++s) {
    for (size_t i = 0; i < 4; ++i) in.key[s * 4 + i] *= s < 300 ? 1.0F : s < 600 ? 60.0F : 3.0F;
  }
  expect_near(in.context(3), in.expected(), name(in));
}

TEST(BlockAttention, PassesOnNumbersThatAreNotFinite) {
  BlockCase in{.tokens = 30, .keys = 400, .prefix = 400, .width = 8};
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    in.fill(13);
    in.query[5 * 8] = bad;
    const std::vector<float> out = in.context(30);
    for (size_t t = 0; t < 30; ++t) EXPECT_EQ(std::isfinite(out[t * 8]), t != 5) << bad << " " << t;
  }
  in.fill(13);
  in.value[399 * 8] = std::numeric_limits<float>::quiet_NaN();
  for (size_t t = 0; t < 30; ++t) EXPECT_TRUE(std::isnan(in.context(30)[t * 8]));
}

TEST(BlockAttention, IsZeroWithoutKeys) {
  BlockCase in{.tokens = 40, .keys = 40, .prefix = 0, .width = 8};
  in.fill(17);
  EXPECT_EQ(in.context(40), std::vector<float>(in.query.size(), 0.0F));
}

TEST(BlockAttention, CutsTokensIntoPartsOfManyForAllThreads) {
  EXPECT_EQ(block_tokens(30, 8, 1, 2), 30);
  EXPECT_EQ(block_tokens(256, 8, 1, 2), 256);
  EXPECT_EQ(block_tokens(4096, 8, 1, 2), 512);
  EXPECT_EQ(block_tokens(4096, 8, 8, 2), 96);
  EXPECT_LE(block_tokens(256, 1, 1, 4), 128);
  EXPECT_GE(block_tokens(256, 1, 1, 64), 96);
  EXPECT_EQ(block_tokens(0, 8, 1, 2), 1);
}

}  // namespace
}  // namespace draftsmith::model
