// Attention in blocks, norms, activations, rotations and softmax of rows against fp64; a row's numbers do not depend on
// the others.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/cpu/block_attention.h"
#include "model/cpu/row_operations.h"
#include "model/cpu/softmax_rows.h"
#include "tests/support/tensors.h"

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

TEST(BlockAttention, CutsTokensIntoPartsOfManyForAllThreads) {
  EXPECT_EQ(block_tokens(30, 8, 1, 2), 30);
  EXPECT_EQ(block_tokens(256, 8, 1, 2), 256);
  EXPECT_EQ(block_tokens(4096, 8, 1, 2), 512);
  EXPECT_EQ(block_tokens(4096, 8, 8, 2), 96);
  EXPECT_LE(block_tokens(256, 1, 1, 4), 128);
  EXPECT_GE(block_tokens(256, 1, 1, 64), 96);
  EXPECT_EQ(block_tokens(0, 8, 1, 2), 1);
}

at::Tensor normalized(const RowNorm& norm, const at::Tensor& x) {
  at::Tensor y = at::empty_like(x);
  normalize_rows(norm, x.const_data_ptr<float>(), x.size(0), x.size(1), y.mutable_data_ptr<float>());
  return y;
}

TEST(RowOperations, NormsOfEveryWidth) {
  for (const int64_t width : {1, 5, 15, 16, 17, 33, 512, 1000}) {
    const at::Tensor x = random_tensor({3, width}, 1) * 2 + 0.5;
    const at::Tensor weight = random_tensor({width}, 2), bias = random_tensor({width}, 3);
    const auto* w = weight.const_data_ptr<float>();
    const at::Tensor wide = x.to(at::kDouble);
    const at::Tensor rms = wide * at::rsqrt(wide.square().mean(-1, true) + 1e-6) * weight;
    EXPECT_LT(difference(normalized({w, nullptr, 1e-6, false}, x), rms), 1e-5) << width;
    const at::Tensor centered = wide - wide.mean(-1, true);
    const at::Tensor layer = centered * at::rsqrt(centered.square().mean(-1, true) + 1e-5) * weight + bias;
    EXPECT_LT(difference(normalized({w, bias.const_data_ptr<float>(), 1e-5, true}, x), layer), 1e-5) << width;
  }
}

TEST(RowOperations, NormsAreOfEachRowAloneAndKeepNan) {
  at::Tensor x = random_tensor({4, 40}, 4);
  const at::Tensor weight = at::ones({40});
  const RowNorm norm{weight.const_data_ptr<float>(), nullptr, 1e-6, false};
  const at::Tensor together = normalized(norm, x);
  for (int64_t row = 0; row < 4; ++row) {
    EXPECT_TRUE(at::equal(normalized(norm, x.narrow(0, row, 1)), together.narrow(0, row, 1)));
  }
  x[1][7] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor damaged = normalized(norm, x);
  EXPECT_TRUE(damaged[1].isnan().all().item<bool>());
  EXPECT_TRUE(at::equal(damaged[2], together[2]));
}

TEST(RowOperations, ActivationsAreLibTorchs) {
  const at::Tensor x = at::cat({random_tensor({1003}, 5) * 4, at::tensor({0.0F, -0.0F, 60.0F, -60.0F, 1e-30F, -3e4F})});
  for (const PostOp then : {PostOp::kNone, PostOp::kRelu, PostOp::kGelu, PostOp::kGeluTanh, PostOp::kSilu}) {
    at::Tensor y = x.clone();
    activate(then, y.mutable_data_ptr<float>(), y.numel());
    const at::Tensor expected = applied(then, x.to(at::kDouble));
    EXPECT_TRUE(at::allclose(y.to(at::kDouble), expected, 3e-6, 3e-7)) << static_cast<int>(then);
    at::Tensor none = at::full({37}, std::numeric_limits<float>::quiet_NaN());
    activate(then, none.mutable_data_ptr<float>(), none.numel());
    EXPECT_TRUE(none.isnan().all().item<bool>()) << static_cast<int>(then);
  }
}

TEST(RowOperations, RotatesPairsAndLeavesTheRest) {
  const at::Tensor x = random_tensor({2, 10}, 6);
  const at::Tensor cosine = random_tensor({3}, 7), sine = random_tensor({3}, 8);
  at::Tensor y = x.clone();
  rotate_heads(y.mutable_data_ptr<float>(), 2, 10, cosine.const_data_ptr<float>(), sine.const_data_ptr<float>(), 3);
  const at::Tensor first = x.narrow(1, 0, 3), second = x.narrow(1, 3, 3);
  const at::Tensor expected =
      at::cat({first * cosine - second * sine, second * cosine + first * sine, x.narrow(1, 6, 4)}, 1);
  EXPECT_LT(difference(y, expected), 1e-6);
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_scores(int64_t count) {
  const at::Tensor scores = 4 * random_tensor({count}, 1);
  const float* data = scores.const_data_ptr<float>();
  return {data, data + count};
}

TEST(SoftmaxRows, IsThatOfFp64ForRowsOfAnyLength) {
  for (int64_t columns = 1; columns <= 70; ++columns) {
    for (const int64_t rows : {1, 2, 3, 23}) {
      const auto count = static_cast<size_t>(rows * columns);
      std::vector<float> scores = random_scores(rows * columns);
      if (columns > 3) scores[static_cast<size_t>(columns - 2)] = -1e30F;  // a hidden key
      const at::Tensor expected = at::from_blob(scores.data(), {rows, columns}, at::kFloat).to(at::kDouble).softmax(-1);
      scores.push_back(7);
      softmax_rows(scores.data(), rows, columns);
      EXPECT_EQ(scores.back(), 7) << "writes beyond its end";
      const at::Tensor found = at::from_blob(scores.data(), {rows, columns}, at::kFloat);
      EXPECT_LT(difference(found, expected), 1e-6) << rows << " rows of " << columns;
      ASSERT_EQ(scores.size(), count + 1);
    }
  }
}

TEST(SoftmaxRows, NanAndRowsWithoutAFiniteNumberSpoilTheirOwnRowAlone) {
  for (const int64_t columns : {5, 16, 21, 40}) {
    const auto width = static_cast<size_t>(columns);
    std::vector<float> scores(5 * width, 1.0F);
    scores[width + 2] = kNan;
    std::fill_n(scores.begin() + 3 * columns, columns, -kInfinity);
    softmax_rows(scores.data(), 5, columns);
    for (size_t i = 0; i < scores.size(); ++i) {
      const bool spoiled = i / width == 1 || i / width == 3;
      EXPECT_EQ(std::isnan(scores[i]), spoiled) << "row " << i / width << " of " << columns;
      if (spoiled) continue;
      EXPECT_NEAR(scores[i], 1.0 / static_cast<double>(columns), 1e-7);
    }
  }
}

}  // namespace
}  // namespace draftsmith::model
