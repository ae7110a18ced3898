// Attention in blocks, norms, activations, rotations and softmax of rows against fp64; a row's numbers do not depend on
// the others.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "model/cpu/block_attention.h"
#include "model/cpu/row_operations.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

// Sizes of a test, and its numbers.
struct BlockCase {
  int64_t tokens = 1, keys = 1, prefix = 1;
  bool growing = false;
  int64_t width = 64, heads = 1;
  bool biased = true;
  double scale = 1;

  at::Tensor query = {};  // [tokens,heads,K]
  at::Tensor key = {};    // [keys,K]
  at::Tensor value = {};  // [keys,K]
  at::Tensor bias = {};   // [heads,tokens+keys]

  void fill(uint64_t seed) {
    query = random_tensor({tokens, heads, width}, seed);
    key = random_tensor({keys, width}, seed + 1000);
    value = random_tensor({keys, width}, seed + 2000);
    bias = random_tensor({heads, tokens + keys}, seed + 3000);
  }

  // Computes `part` tokens at a time. [tokens,heads,K]
  at::Tensor context(int64_t part) const {
    at::Tensor out = at::full_like(query, -1);
    BlockHead all{.heads = heads, .width = width, .prefix = prefix, .growing = growing, .scale = scale};
    all.query = query.const_data_ptr<float>();
    all.keys = key.const_data_ptr<float>();
    all.values = value.const_data_ptr<float>();
    if (biased) all.bias = bias.const_data_ptr<float>() + tokens;
    all.context = out.mutable_data_ptr<float>();
    all.query_stride = all.context_stride = heads * width;
    all.key_stride = width;
    all.bias_stride = tokens + keys;
    for (int64_t begin = 0; begin < tokens; begin += part) attend_blocks(all, begin, std::min(begin + part, tokens));
    return out;
  }

  // Expects the sums of fp64.
  void expect_exact(double most = 5e-5) const {
    at::Tensor scores = query.to(at::kDouble).matmul(key.to(at::kDouble).t()) * scale;  // [tokens,heads,keys]
    for (int64_t t = 0; t < tokens; ++t) {
      if (biased) scores[t].add_(bias.narrow(1, tokens - t, keys));
      const int64_t seen = prefix + (growing ? t : 0);
      scores[t].narrow(1, seen, keys - seen).fill_(-std::numeric_limits<double>::infinity());
    }
    // A key that nobody sees may be NaN.
    const at::Tensor expected = at::nan_to_num(scores.softmax(-1)).matmul(at::nan_to_num(value).to(at::kDouble));
    EXPECT_LT(difference(context(tokens), expected), most)
        << tokens << " tokens, " << keys << " keys, K " << width << ", " << heads << " heads";
  }
};

TEST(BlockAttention, EqualsSumsInFp64ForEverySize) {
  uint64_t seed = 0;
  for (const int64_t width : {1, 8, 64, 80, 128}) {
    for (const int64_t keys : {1, 2, 15, 63, 64, 65, 255, 256, 257, 600}) {
      for (const int64_t tokens : {1, 5, 23, 24, 25, 70}) {
        BlockCase in{.tokens = tokens, .keys = keys, .prefix = keys, .width = width};
        in.biased = seed % 3 != 0;
        in.scale = seed % 2 == 0 ? 1.0 : 1 / std::sqrt(static_cast<double>(width));
        in.fill(++seed);
        in.expect_exact();
      }
    }
  }
}

TEST(BlockAttention, HidesLaterKeysOfGrowingPrefixes) {
  uint64_t seed = 100;
  for (const int64_t prefix : {0, 1, 50, 200, 255, 256, 257, 500}) {
    BlockCase in{.tokens = 130, .keys = prefix + 130, .prefix = prefix, .growing = true, .width = 16, .heads = 2};
    in.fill(++seed);
    // Nothing may come from the slot behind the last visible one.
    in.key[in.keys - 1].fill_(std::numeric_limits<float>::quiet_NaN());
    in.value[in.keys - 1].fill_(std::numeric_limits<float>::quiet_NaN());
    in.expect_exact();
  }
}

TEST(BlockAttention, GivesAQueryTheSameBitsInEveryPart) {
  for (const bool growing : {false, true}) {
    BlockCase in{.tokens = 300, .keys = 700, .prefix = growing ? 400 : 700, .growing = growing, .heads = 2};
    in.fill(7);
    const at::Tensor whole = in.context(in.tokens);
    for (const int64_t part : {1, 7, 96, 299}) EXPECT_TRUE(at::equal(in.context(part), whole)) << part;
  }
}

TEST(BlockAttention, TakesScoresThatGrowFromBlockToBlock) {
  // The highest score rises, and falls, by more than a weight can hold.
  BlockCase in{.tokens = 3, .keys = 900, .prefix = 900, .width = 4, .biased = false};
  in.fill(11);
  in.key.narrow(0, 300, 300).mul_(60);
  in.key.narrow(0, 600, 300).mul_(3);
  in.expect_exact(5e-4);  // scores of some hundreds
}

TEST(BlockAttention, PassesOnNumbersThatAreNotFinite) {
  BlockCase in{.tokens = 30, .keys = 400, .prefix = 400, .width = 8};
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    in.fill(13);
    in.query[5][0][0] = bad;
    const at::Tensor finite = in.context(30).isfinite().select(2, 0).view(-1);
    EXPECT_TRUE(finite.equal(at::arange(30, at::kLong).ne(5))) << bad;
  }
  in.fill(13);
  in.value[399][0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(in.context(30).select(2, 0).isnan().all().item<bool>());
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

TEST(RowOperations, GeluIsThatOfFp64WithItsTailsAndLimits) {
  const at::Tensor small = at::pow(10.0F, at::arange(-45, 2, at::kFloat));
  at::Tensor y = at::cat({at::linspace(-20, 20, 400001), small, -small});
  const at::Tensor x = y.to(at::kDouble), expected = x * 0.5 * at::erfc(x * -std::sqrt(0.5));
  activate(PostOp::kGelu, y.mutable_data_ptr<float>(), y.numel());
  const at::Tensor error = (y.to(at::kDouble) - expected).abs();
  EXPECT_LT((error / x.abs().clamp_min(1)).max().item<double>(), 2e-7);
  EXPECT_TRUE((error <= expected.abs() * 1e-5 + 1e-37).all().item<bool>()) << "a tail loses digits";
  constexpr float kEndless = std::numeric_limits<float>::infinity(), kMost = std::numeric_limits<float>::max();
  std::vector<float> ends{kEndless, kMost, 14, 0, -14, -kMost, -kEndless};
  activate(PostOp::kGelu, ends.data(), std::ssize(ends));
  EXPECT_EQ(ends, (std::vector<float>{kEndless, kMost, 14, 0, 0, 0, 0}));
}

TEST(RowOperations, ActivationsOfANumberDoNotDependOnItsPlace) {
  const at::Tensor x = random_tensor({1003}, 9) * 4;
  for (const PostOp then : {PostOp::kGelu, PostOp::kGeluTanh, PostOp::kSilu}) {
    at::Tensor whole = x.clone();
    activate(then, whole.mutable_data_ptr<float>(), x.numel());
    for (const int64_t part : {1, 7, 13, 33}) {
      at::Tensor y = x.clone();
      for (at::Tensor piece : y.split(part)) activate(then, piece.mutable_data_ptr<float>(), piece.numel());
      EXPECT_TRUE(at::equal(y, whole)) << static_cast<int>(then) << " in parts of " << part;
    }
  }
}

TEST(RowOperations, RotatesPairsAndLeavesTheRest) {
  const at::Tensor x = random_tensor({2, 10}, 6), cosine = random_tensor({3}, 7), sine = random_tensor({3}, 8);
  at::Tensor y = x.clone();
  rotate_heads(y.mutable_data_ptr<float>(), 2, 10, cosine.const_data_ptr<float>(), sine.const_data_ptr<float>(), 3);
  const at::Tensor first = x.narrow(1, 0, 3), second = x.narrow(1, 3, 3);
  const at::Tensor expected =
      at::cat({first * cosine - second * sine, second * cosine + first * sine, x.narrow(1, 6, 4)}, 1);
  EXPECT_LT(difference(y, expected), 1e-6);
}

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

TEST(SoftmaxRows, IsThatOfFp64ForRowsOfAnyLength) {
  for (int64_t columns = 1; columns <= 70; ++columns) {
    for (const int64_t rows : {1, 2, 3, 23}) {
      const at::Tensor numbers = 4 * random_tensor({rows * columns}, 1);
      const auto count = static_cast<size_t>(numbers.numel());
      std::vector<float> scores(numbers.const_data_ptr<float>(), numbers.const_data_ptr<float>() + count);
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
