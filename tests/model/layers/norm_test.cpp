// RMS norm: its operators equal the composite of LibTorch's, with gradients, for every pair of dtypes.
#include "model/layers/norm.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/layers/rms_norm.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

struct Types {
  at::ScalarType x;
  at::ScalarType weight;
};

const std::vector<Types> kTypes{
    {at::kFloat, at::kFloat},    {at::kDouble, at::kDouble}, {at::kBFloat16, at::kBFloat16}, {at::kHalf, at::kHalf},
    {at::kBFloat16, at::kFloat}, {at::kHalf, at::kFloat},    {at::kFloat, at::kBFloat16},    {at::kFloat, at::kHalf}};

struct NormInput {
  at::Tensor x;         // [3,5,D]
  at::Tensor weight;    // [D]
  at::Tensor gradient;  // [3,5,D], of y
};

NormInput norm_input(const Types& types, int64_t width) {
  return {random_tensor({3, 5, width}, 1, types.x) * 3, random_tensor({width}, 2, types.weight),
          random_tensor({3, 5, width}, 3, types.weight)};
}

// The definition, as model/layers/rms_norm.h gives it, with autograd's gradients.
at::Tensor composite(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  const at::Tensor wide = x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
  const at::Tensor normed = wide * at::rsqrt(wide.square().mean(-1, true) + epsilon);
  return normed.to(weight.scalar_type()) * weight;
}

// Returns the largest difference that two computations of the type may have, relative to their largest number.
double tolerance(at::ScalarType type) {
  if (type == at::kDouble) return 1e-13;
  if (type == at::kFloat) return 1e-5;
  return type == at::kHalf ? 2e-3 : 1.6e-2;
}

// Expects a difference of at most `most` times the largest number, or times `scale` if that is larger.
void expect_close(const at::Tensor& found, const at::Tensor& expected, double most, double scale = 0) {
  EXPECT_EQ(found.scalar_type(), expected.scalar_type());
  EXPECT_EQ(found.sizes(), expected.sizes());
  EXPECT_LE(difference(found.cpu(), expected), most * std::max(scale, largest(expected.to(at::kDouble))));
}

// Compares the operators on a device with the composite and its gradients on the CPU.
void expect_composite(const Types& types, int64_t width, at::Device device) {
  SCOPED_TRACE(fmt::format("{} {} {}", at::toString(types.x), at::toString(types.weight), width));
  NormInput input = norm_input(types, width);
  const at::Tensor x = input.x.to(device);
  const at::Tensor weight = input.weight.to(device);
  const RmsNormed normed = rms_normed(x, weight, 1e-6);
  // With the same inverse, every rounding is that of tensor operations.
  const at::Tensor wide = x.to(normed.inverse.scalar_type()) * normed.inverse.view({3, 5, 1});
  EXPECT_TRUE(at::equal(normed.y, wide.to(types.weight) * weight));
  const RmsNormGradients found = rms_norm_gradients(input.gradient.to(device), x, weight, normed.inverse);
  input.x.requires_grad_(true);
  input.weight.requires_grad_(true);
  const at::Tensor expected = composite(input.x, input.weight, 1e-6);
  expected.backward(input.gradient);
  expect_close(normed.y, expected.detach(), tolerance(types.weight));
  // dx is a difference, of which a row of one number leaves nothing.
  const double terms = largest(input.weight.detach() * input.gradient) * largest(normed.inverse.cpu());
  expect_close(found.x, input.x.grad(), std::max(tolerance(types.x), tolerance(types.weight)), terms);
  expect_close(found.weight, input.weight.grad(), tolerance(types.weight));
}

TEST(RmsNormOperator, EqualsTheCompositeAndItsGradients) {
  for (const Types& types : kTypes) {
    for (const int64_t width : {1, 7, 33, 512}) expect_composite(types, width, at::kCPU);
  }
}

TEST(NormLayer, OfNothingIsNothing) {
  const NormLayer norm(Norm::kRms, 1e-6, at::ones({4}), {});
  EXPECT_EQ(norm(at::empty({0, 4})).sizes(), at::IntArrayRef({0, 4}));
}

TEST(RmsNormGpu, EqualsTheComposite) {
  if (!at::hasCUDA() || at::detail::getCUDAHooks().getNumGPUs() == 0) GTEST_SKIP() << "no CUDA device";
  for (const Types& types : kTypes) {
    for (const int64_t width : {1, 7, 33, 512, 1000, 5000}) expect_composite(types, width, at::kCUDA);
  }
}

// A row's result must not depend on the other rows: speculative decoding compares steps of 1 and of several tokens.
TEST(RmsNormGpu, ARowIsTheSameAmongOthers) {
  if (!at::hasCUDA() || at::detail::getCUDAHooks().getNumGPUs() == 0) GTEST_SKIP() << "no CUDA device";
  const at::Tensor x = random_tensor({9, 1024}).to(at::kCUDA);
  const at::Tensor weight = random_tensor({1024}, 2).to(at::kCUDA);
  EXPECT_TRUE(at::equal(rms_normed(x, weight, 1e-6).y[4], rms_normed(x[4], weight, 1e-6).y));
}

}  // namespace
}  // namespace draftsmith::model
