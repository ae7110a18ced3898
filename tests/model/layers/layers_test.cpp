// Layers give what tensor operations give, forward and backward: attention by heads, products of bf16, embeddings,
// packed weights, RMS norm for every pair of dtypes.
#include <cmath>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/aten.h"
#include "base/bf16_product.h"
#include "base/device_tensors.h"
#include "base/random_tensors.h"
#include "model/layers/cached_attention.h"
#include "model/layers/head_attention.h"
#include "model/layers/linear.h"
#include "model/layers/mixed_products.h"
#include "model/layers/rms_norm.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

struct HeadCase {
  int64_t rows, queries, keys, heads, shared, width;
  double scale = 1, dropout = 0;
  bool biased = false;
};

constexpr DropoutKey kMask{.seed = 3, .step = 4, .site = 5};

// Attention in tensor operations; any type.
at::Tensor composed_attention(const HeadAttentionInput& in) {
  const int64_t rows = in.query.size(0), heads = in.query.size(2) / in.width;
  const auto split = [&](const at::Tensor& x) {
    const int64_t own = x.size(2) / in.width;
    return x.view({rows, x.size(1), own, in.width})
        .transpose(1, 2)
        .repeat_interleave(heads / own, 1)
        .reshape({rows * heads, x.size(1), in.width});
  };
  at::Tensor scores = at::bmm(split(in.query), split(in.key).transpose(1, 2)) * in.scale;
  if (in.additive.defined()) scores = scores + in.additive;
  const at::Tensor weights = dropout(at::softmax(scores, -1), in.dropout, in.key_of_mask);
  return at::bmm(weights, split(in.value))
      .view({rows, heads, in.query.size(1), in.width})
      .transpose(1, 2)
      .reshape(in.query.sizes());
}

// Context, and gradients of query, key, value and bias.
std::vector<at::Tensor> all_results(const HeadCase& given, at::ScalarType type, bool by_heads) {
  const auto numbers = [&](at::IntArrayRef shape, const char* stream) {
    // Numbers of bf16 in every type.
    return normal_tensor(shape, 1, 7, stream, at::kDouble).to(at::kBFloat16).to(type).requires_grad_(true);
  };
  // Query, key and value lie side by side where their shapes allow it, as those of one product do.
  const int64_t inner = given.heads * given.width, shared = given.shared * given.width;
  at::Tensor query = numbers({given.rows, given.queries, inner + 3}, "query");
  at::Tensor key = numbers({given.rows, given.keys, shared}, "key");
  at::Tensor value = numbers({given.rows, given.keys, shared}, "value");
  at::Tensor bias;
  if (given.biased) {
    bias = normal_tensor({given.rows * given.heads, given.queries, given.keys}, 1, 7, "bias",
                         type == at::kDouble ? at::kDouble : at::kFloat);
    bias.select(2, given.keys - 1).fill_(-1e30);  // a hidden key
    bias.requires_grad_(true);
  }
  HeadAttentionInput input{.query = query.narrow(2, 0, inner), .key = key, .value = value, .additive = bias};
  input.width = given.width;
  input.scale = given.scale;
  input.dropout = given.dropout;
  input.key_of_mask = kMask;
  EXPECT_EQ(attends_by_heads(input), type != at::kDouble);
  const at::Tensor context = by_heads ? attention_by_heads(input) : composed_attention(input);
  const at::Tensor weights =
      normal_tensor(context.sizes(), 1, 8, "upstream", at::kDouble).to(at::kBFloat16).to(context.scalar_type());
  (context * weights).sum().backward();
  std::vector<at::Tensor> all{context.detach(), query.grad(), key.grad(), value.grad()};
  if (bias.defined()) all.push_back(bias.grad());
  return all;
}

const std::vector<HeadCase> kHeadCases = {
    {.rows = 1, .queries = 1, .keys = 1, .heads = 1, .shared = 1, .width = 4},
    {.rows = 2, .queries = 5, .keys = 7, .heads = 4, .shared = 4, .width = 8, .dropout = 0.25, .biased = true},
    {.rows = 3, .queries = 9, .keys = 17, .heads = 6, .shared = 2, .width = 5, .scale = 0.3, .dropout = 0.1},
    {.rows = 2, .queries = 64, .keys = 33, .heads = 2, .shared = 1, .width = 16, .scale = 0.25, .biased = true},
    {.rows = 1, .queries = 40, .keys = 64, .heads = 2, .shared = 2, .width = 64, .scale = 0.125, .dropout = 0.5}};

void expect_close(at::ScalarType type, double tolerance) {
  for (size_t i = 0; i < kHeadCases.size(); ++i) {
    const auto found = all_results(kHeadCases[i], type, true);
    const auto expected = all_results(kHeadCases[i], at::kDouble, false);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t j = 0; j < found.size(); ++j) {
      const double error = (found[j].to(at::kDouble) - expected[j]).abs().max().item<double>();
      EXPECT_LE(error, tolerance * (1 + expected[j].abs().max().item<double>())) << "case " << i << " result " << j;
    }
  }
}

// Of bf16 only inputs and outputs are rounded.
TEST(HeadAttention, EqualsTheComposedOneInFp64) {
  expect_close(at::kFloat, 1e-5);
  expect_close(at::kBFloat16, 6e-3);
}

TEST(HeadAttention, GivesTheSameBitsForEveryNumberOfThreads) {
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const auto expected = all_results(kHeadCases[2], at::kFloat, true);
  at::set_num_threads(3);
  const auto found = all_results(kHeadCases[2], at::kFloat, true);
  at::set_num_threads(before);
  for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i].equal(expected[i])) << i;
}

// The second token overflows, and so did one behind it that was taken back. As on devices, all slots are read.
TEST(CachedAttention, InFp16HidesNumbersThatAreNone) {
  const at::NoGradGuard no_gradients;
  const auto numbers = [](at::IntArrayRef sizes) {
    return at::sin(at::arange(48, at::kFloat)).to(at::kHalf).view(sizes);
  };
  const VisibleKeys keys{.cache_row = {0}, .first = {3}, .queries = {2}, .growing = true};
  CachedAttentionInput input{
      numbers({1, 1, 6, 8}).narrow(2, 0, 2).reshape({1, 2, 8}), numbers({1, 2, 6, 4}), -numbers({1, 2, 6, 4}), {}};
  const auto context = [&] {
    StepVisibility visible(keys, slots_of(keys, 2), /*recorded=*/true);
    return cached_attention(input, visible);  // [1,2,8]
  };
  const at::Tensor usual = context();
  for (const double none : {HUGE_VAL, std::nan("")}) {
    for (const at::Tensor& cache : {input.keys, input.values}) {
      for (const int64_t slot : {3, 5}) cache.select(2, slot).fill_(none);
    }
    EXPECT_TRUE(at::equal(context().select(1, 0), usual.select(1, 0)));
  }
  EXPECT_TRUE(context().select(1, 1).isnan().all().item<bool>());
}

// Widths that fill vectors whole, in part or not, and caps of scores; siblings, or a window.
TEST(CachedAttention, OfFewQueriesEqualsFp64ForEveryWidth) {
  for (const auto& [width, own] : {std::pair{3, true}, {8, false}, {44, true}, {64, false}, {108, true}}) {
    const at::Tensor numbers = at::sin(at::arange(120 * width, at::kDouble)).view({2, 2, 30, width});
    const at::Tensor query = numbers.flatten().narrow(0, 7, 16 * width).view({1, 4, 4 * width});
    const VisibleKeys keys{.cache_row = {1}, .first = {21}, .queries = {4}, .growing = !own, .own_slot = own};
    const auto context = [&, window = own ? 0 : 7](at::ScalarType type) {
      StepVisibility visible(keys, {}, /*recorded=*/false);
      return cached_attention({query.to(type), numbers.to(type), -numbers.to(type), {}, 0.3, 2, window}, visible);
    };
    EXPECT_LT(difference(context(at::kFloat), context(at::kDouble)), 2e-6) << width;
  }
}

// A rounding to bf16 is up to 1/256 of the number.
constexpr double kRounding = 1.0 / 256;

// The numbers that x has in bf16; fp64, whose products autocast leaves alone.
at::Tensor rounded(const at::Tensor& x) {
  return x.detach().to(at::kBFloat16).to(at::kDouble);
}

// Largest difference as a share of the largest number.
double share_of_difference(const at::Tensor& found, const at::Tensor& expected) {
  return difference(found, expected) / expected.abs().max().item<double>();
}

class MixedProductsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_bf16_product()) GTEST_SKIP() << "this processor has no products of bf16";
  }

  AutocastScope autocast_{at::kCPU, true};
};

TEST_F(MixedProductsTest, OutputsAndGradientsAreThoseOfRoundedNumbers) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t rows : {1, 37, 1030}) {
      const at::Tensor x = random_tensor({rows, 70}, 1).to(type).requires_grad_();
      const at::Tensor first = random_tensor({48, 70}, 2).requires_grad_();
      const at::Tensor second = random_tensor({5, 70}, 3).requires_grad_();
      ASSERT_TRUE(multiplies_mixed(x, first));
      const std::vector<at::Tensor> out = mixed_products(x, {first, second});
      ASSERT_EQ(out[0].scalar_type(), at::kBFloat16);
      const at::Tensor narrow = rounded(x), slope_1 = rounded(random_tensor({rows, 48}, 4)),
                       slope_2 = rounded(random_tensor({rows, 5}, 5));
      EXPECT_LT(share_of_difference(out[0], narrow.mm(rounded(first).t())), kRounding);
      EXPECT_LT(share_of_difference(out[1], narrow.mm(rounded(second).t())), kRounding);
      torch::autograd::backward(out, {slope_1.to(at::kBFloat16), slope_2.to(at::kBFloat16)});
      const at::Tensor dx = slope_1.mm(rounded(first)) + slope_2.mm(rounded(second));
      EXPECT_EQ(x.grad().scalar_type(), type);
      EXPECT_LT(share_of_difference(x.grad(), dx), type == at::kFloat ? 1e-5 : kRounding) << rows;
      EXPECT_LT(share_of_difference(first.grad(), slope_1.t().mm(narrow)), 1e-5) << rows;
      EXPECT_LT(share_of_difference(second.grad(), slope_2.t().mm(narrow)), 1e-5) << rows;
    }
  }
}

TEST_F(MixedProductsTest, ReluStopsTheGradientsOfOutputsBelowZero) {
  const at::Tensor x = random_tensor({3, 40, 33}, 1).requires_grad_();
  const at::Tensor weight = random_tensor({64, 33}, 2).requires_grad_();
  const at::Tensor out = mixed_products(x, {weight}, /*relu=*/true).front();
  const at::Tensor product = rounded(x).matmul(rounded(weight).t());
  EXPECT_LT(share_of_difference(out, product.relu()), kRounding);
  EXPECT_FALSE(out.signbit().any().item<bool>());  // no negative zeros
  const at::Tensor slope = rounded(random_tensor({3, 40, 64}, 3));
  out.backward(slope.to(at::kBFloat16));
  const at::Tensor stopped = slope * out.detach().gt(0);
  EXPECT_LT(share_of_difference(x.grad(), stopped.matmul(rounded(weight))), 1e-5);
  EXPECT_LT(share_of_difference(weight.grad(), stopped.view({-1, 64}).t().mm(rounded(x).view({-1, 33}))), 1e-5);
}

TEST_F(MixedProductsTest, ResidualIsAddedWithoutRounding) {
  const at::Tensor residual = random_tensor({50, 48}, 1).requires_grad_();
  const at::Tensor x = random_tensor({50, 70}, 2).requires_grad_();
  const at::Tensor weight = random_tensor({48, 70}, 3).requires_grad_();
  const at::Tensor out = mixed_product_added(residual, x, weight);
  EXPECT_LT(share_of_difference(out, residual.detach() + rounded(x).mm(rounded(weight).t())), 1e-5);
  const at::Tensor slope = random_tensor({50, 48}, 4);
  out.backward(slope);
  EXPECT_TRUE(at::equal(residual.grad(), slope));
  EXPECT_LT(share_of_difference(x.grad(), rounded(slope).mm(rounded(weight))), 1e-5);
  EXPECT_LT(share_of_difference(weight.grad(), rounded(slope).t().mm(rounded(x))), 1e-5);
}

class EmbeddedRows : public testing::Test {
 protected:
  const at::Tensor values_ = random_tensor({50, 130}, 1);
  const at::Tensor ids_ = at::arange(0, 60, at::kLong).remainder(7).mul(5).view({4, 15});  // each several times
  const at::Tensor upstream_ = random_tensor({4, 15, 130}, 2);
};

// As a tied head's gradient, and those of an encoder and of earlier micro-batches.
TEST_F(EmbeddedRows, AddToTheGradientThatIsThere) {
  const at::Tensor table = values_.clone().requires_grad_(true), factor = random_tensor({50, 130}, 3);
  ((embedded(table, ids_) * upstream_).sum() + (embedded(table, ids_) * upstream_).sum() + (table * factor).sum())
      .backward();
  (embedded(table, ids_) * upstream_).sum().backward();
  const at::Tensor plain = values_.clone().requires_grad_(true);
  (at::embedding(plain, ids_) * upstream_).sum().backward();
  EXPECT_TRUE(at::allclose(table.grad(), plain.grad() * 3 + factor, 1e-5, 1e-5));
}

TEST_F(EmbeddedRows, GiveTheSameBitsForEveryNumberOfThreads) {
  const int threads = at::get_num_threads();
  std::vector<at::Tensor> gradients;
  for (const int number : {1, 2}) {
    at::set_num_threads(number);
    const at::Tensor table = values_.clone().requires_grad_(true);
    (embedded(table, ids_) * upstream_).sum().backward();
    gradients.push_back(table.grad());
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(gradients[0].equal(gradients[1]));
}

TEST(LinearPacked, GradientsReachTheInputOfAFrozenLayer) {
  WeightArena arena;
  Linear layer(random_tensor({20, 10}, 10));
  layer.pack(arena, PostOp::kRelu);
  const at::Tensor x = random_tensor({3, 10}, 11).requires_grad_(true);
  EXPECT_FALSE(layer.fuses(x));
  layer.add_to(random_tensor({3, 20}, 12), x).sum().backward();
  EXPECT_TRUE(x.grad().defined());
}

// Types of x and of the weight.
using Types = std::pair<at::ScalarType, at::ScalarType>;

const std::vector<Types> kTypes{
    {at::kFloat, at::kFloat},    {at::kDouble, at::kDouble}, {at::kBFloat16, at::kBFloat16}, {at::kHalf, at::kHalf},
    {at::kBFloat16, at::kFloat}, {at::kHalf, at::kFloat},    {at::kFloat, at::kBFloat16},    {at::kFloat, at::kHalf}};

// Returns the largest difference that two computations of the type may have, relative to their largest number.
double norm_tolerance(at::ScalarType type) {
  if (type == at::kDouble) return 1e-13;
  if (type == at::kFloat) return 1e-5;
  return type == at::kHalf ? 2e-3 : 1.6e-2;
}

// Expects a difference of at most `most` times the largest number, or times `scale` if that is larger.
void expect_alike(const at::Tensor& found, const at::Tensor& expected, double most, double scale = 0) {
  EXPECT_EQ(found.scalar_type(), expected.scalar_type());
  EXPECT_EQ(found.sizes(), expected.sizes());
  EXPECT_LE(difference(found.cpu(), expected), most * std::max(scale, largest(expected.to(at::kDouble))));
}

// Compares the operators on a device with the definition and its gradients, by autograd on the CPU.
void expect_composite(const Types& types, int64_t width, at::Device device) {
  SCOPED_TRACE(fmt::format("{} {} {}", at::toString(types.first), at::toString(types.second), width));
  const at::Tensor own_x = random_tensor({3, 5, width}, 1, types.first) * 3;
  const at::Tensor own_weight = random_tensor({width}, 2, types.second);
  const at::Tensor gradient = random_tensor({3, 5, width}, 3, types.second);
  const at::Tensor x = own_x.to(device, /*non_blocking=*/false, /*copy=*/true), weight = own_weight.clone().to(device);
  const RmsNormed normed = rms_normed(x, weight, 1e-6);
  // With the same inverse, every rounding is that of tensor operations.
  const at::Tensor wide = x.to(normed.inverse.scalar_type()) * normed.inverse.view({3, 5, 1});
  EXPECT_TRUE(at::equal(normed.y, wide.to(types.second) * weight));
  const RmsNormGradients found = rms_norm_gradients(gradient.to(device), x, weight, normed.inverse);
  own_x.requires_grad_(true);
  own_weight.requires_grad_(true);
  const at::Tensor exact = types.first == at::kDouble ? own_x : own_x.to(at::kFloat);
  const at::Tensor expected = (exact * at::rsqrt(exact.square().mean(-1, true) + 1e-6)).to(types.second) * own_weight;
  expected.backward(gradient);
  expect_alike(normed.y, expected.detach(), norm_tolerance(types.second));
  // dx is a difference, of which a row of one number leaves nothing.
  const double terms = largest(own_weight.detach() * gradient) * largest(normed.inverse.cpu());
  expect_alike(found.x, own_x.grad(), std::max(norm_tolerance(types.first), norm_tolerance(types.second)), terms);
  expect_alike(found.weight, own_weight.grad(), norm_tolerance(types.second));
}

bool has_gpu() {
  return at::hasCUDA() && at::detail::getCUDAHooks().getNumGPUs() > 0;
}

TEST(RmsNorm, EqualsTheCompositeAndItsGradients) {
  for (const Types& types : kTypes) {
    for (const int64_t width : {1, 7, 33, 512}) expect_composite(types, width, at::kCPU);
    if (!has_gpu()) continue;
    for (const int64_t width : {1, 7, 33, 512, 1000, 5000}) expect_composite(types, width, at::kCUDA);
  }
}

// A row's result must not depend on the other rows: speculative decoding compares steps of 1 and of several tokens.
TEST(RmsNorm, ARowIsTheSameAmongOthersOnGpus) {
  if (!has_gpu()) GTEST_SKIP() << "no CUDA device";
  const at::Tensor x = random_tensor({9, 1024}).to(at::kCUDA), weight = random_tensor({1024}, 2).to(at::kCUDA);
  EXPECT_TRUE(at::equal(rms_normed(x, weight, 1e-6).y[4], rms_normed(x[4], weight, 1e-6).y));
}

TEST(NormLayer, OfNothingIsNothing) {
  const NormLayer norm(Norm::kRms, 1e-6, at::ones({4}), {});
  EXPECT_EQ(norm(at::empty({0, 4})).sizes(), at::IntArrayRef({0, 4}));
}

}  // namespace
}  // namespace draftsmith::model
