// Attention by heads is the attention of whole tensors, forward and backward.
#include "model/layers/head_attention.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "base/random_tensors.h"

namespace draftsmith::model {
namespace {

struct HeadCase {
  int64_t rows, queries, keys, heads, shared, width;
  double scale = 1;
  double dropout = 0;
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
  const HeadAttentionInput input{.query = query.narrow(2, 0, inner),
                                 .key = key,
                                 .value = value,
                                 .additive = bias,
                                 .width = given.width,
                                 .scale = given.scale,
                                 .dropout = given.dropout,
                                 .key_of_mask = kMask};
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

TEST(HeadAttention, EqualsTheComposedOneInFp64) {
  expect_close(at::kFloat, 1e-5);
}

TEST(HeadAttention, OfBf16RoundsInputsAndOutputsAlone) {
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

TEST(HeadAttention, PassesNaNOn) {
  const at::Tensor x = at::zeros({1, 3, 4});
  at::Tensor query = x.clone();
  query[0][1][2] = std::numeric_limits<float>::quiet_NaN();
  query.requires_grad_(true);
  const at::Tensor context =
      attention_by_heads({.query = query, .key = x, .value = at::ones_like(x), .additive = {}, .width = 4});
  EXPECT_TRUE(context[0][1].isnan().all().item<bool>());
  EXPECT_TRUE(context[0][0].eq(1).all().item<bool>());
}

TEST(HeadAttention, IsForPassesThatRecordGradients) {
  const at::Tensor x = at::zeros({1, 3, 4});
  EXPECT_FALSE(attends_by_heads({.query = x, .key = x, .value = x, .additive = {}, .width = 4}));
  const at::Tensor trained = at::zeros({1, 3, 4}).requires_grad_(true);
  EXPECT_TRUE(attends_by_heads({.query = trained, .key = x, .value = x, .additive = {}, .width = 4}));
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(attends_by_heads({.query = trained, .key = x, .value = x, .additive = {}, .width = 4}));
}

}  // namespace
}  // namespace draftsmith::model
