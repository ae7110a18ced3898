// The source of the RMS norm's kernels, run on the host: it equals the operators on the CPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/layers/rms_norm_gpu.h"
#include "model/layers/rms_norm_operator.h"
#include "tests/support/cuda_shim.h"
#include "tests/support/tensors.h"
// The shim comes first.
#include "model/layers/kernels/rms_norm.cu"

namespace draftsmith::model {
namespace {

using cuda_shim::Order;

// Kernels of one pair of dtypes, and the types of their arguments.
template <class X_, class W_>
struct Kernels {
  using X = X_;
  using W = W_;
  at::ScalarType x;
  at::ScalarType weight;
  void (*forward)(const X*, const W*, W*, float*, int, double);
  void (*backward)(const W*, const X*, const W*, const float*, X*, float*, long long, int);
  void (*sum)(const float*, W*, int, int);
};

// The tensors of one call.
struct NormTensors {
  at::Tensor x;         // [rows,D]
  at::Tensor weight;    // [D]
  at::Tensor gradient;  // [rows,D]
};

template <class T>
T* data_of(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

template <class K>
RmsNormed run_forward(const K& kernels, const NormTensors& input, Order order) {
  const int64_t rows = input.x.size(0);
  const auto width = static_cast<int>(input.x.size(1));
  RmsNormed result{at::full_like(input.x, 77, input.weight.options()), at::empty({rows}, at::kFloat)};
  cuda_shim::run_grid(
      {static_cast<unsigned>(rows)}, {rms_norm_threads(width)},
      [&] {
        kernels.forward(data_of<typename K::X>(input.x), data_of<typename K::W>(input.weight),
                        data_of<typename K::W>(result.y), data_of<float>(result.inverse), width, 1e-6);
      },
      order);
  return result;
}

template <class K>
RmsNormGradients run_backward(const K& kernels, const NormTensors& input, const at::Tensor& inverse, unsigned parts,
                              Order order) {
  const int64_t rows = input.x.size(0);
  const auto width = static_cast<int>(input.x.size(1));
  RmsNormGradients result{at::full_like(input.x, 77), at::full_like(input.weight, 77)};
  const at::Tensor partial = at::full({parts, width}, NAN, inverse.options());
  cuda_shim::run_grid(
      {parts}, {rms_norm_threads(width)},
      [&] {
        kernels.backward(data_of<typename K::W>(input.gradient), data_of<typename K::X>(input.x),
                         data_of<typename K::W>(input.weight), data_of<float>(inverse),
                         data_of<typename K::X>(result.x), data_of<float>(partial), rows, width);
      },
      order);
  cuda_shim::run_grid(
      {static_cast<unsigned>((width + 31) / 32)}, {32, 32},
      [&] {
        kernels.sum(data_of<float>(partial), data_of<typename K::W>(result.weight), static_cast<int>(parts), width);
      },
      order);
  return result;
}

// Half types may differ by one rounding where the sums' order differs.
double unit(at::ScalarType type) {
  if (type == at::kFloat) return 2e-6;
  return type == at::kHalf ? 1e-3 : 8e-3;
}

// Expects a difference of at most `most` times the largest number, or times `scale` if that is larger.
void expect_near(const at::Tensor& found, const at::Tensor& expected, double most, double scale, const char* what) {
  EXPECT_LE(difference(found, expected), most * std::max(scale, largest(expected.to(at::kDouble)))) << what;
}

template <class K>
void expect_operators(const K& kernels, int64_t rows, int64_t width, unsigned parts) {
  SCOPED_TRACE(fmt::format("{} {} [{},{}]", at::toString(kernels.x), at::toString(kernels.weight), rows, width));
  const NormTensors input{random_tensor({rows, width}, 1, kernels.x) * 3, random_tensor({width}, 2, kernels.weight),
                          random_tensor({rows, width}, 3, kernels.weight)};
  const RmsNormed expected = rms_normed(input.x, input.weight, 1e-6);
  const RmsNormed found = run_forward(kernels, input, Order::kForward);
  expect_near(found.y, expected.y, unit(kernels.weight), 0, "y");
  expect_near(found.inverse, expected.inverse, unit(at::kFloat), 0, "inverse");
  // With the same inverse, every rounding is that of tensor operations.
  const at::Tensor normed = input.x.to(found.inverse.scalar_type()) * found.inverse.unsqueeze(1);
  EXPECT_TRUE(at::equal(found.y, normed.to(kernels.weight) * input.weight));
  EXPECT_TRUE(at::equal(found.y, run_forward(kernels, input, Order::kBackward).y));

  // dx is a difference, of which a row of one number leaves nothing.
  const double terms = largest(input.weight * input.gradient) * largest(expected.inverse);
  const RmsNormGradients gradients = rms_norm_gradients(input.gradient, input.x, input.weight, expected.inverse);
  const RmsNormGradients derived = run_backward(kernels, input, found.inverse, parts, Order::kForward);
  expect_near(derived.x, gradients.x, 4 * std::max(unit(kernels.x), unit(kernels.weight)), terms, "dx");
  expect_near(derived.weight, gradients.weight, 4 * unit(kernels.weight), 0, "dw");
  const RmsNormGradients again = run_backward(kernels, input, found.inverse, parts, Order::kBackward);
  EXPECT_TRUE(at::equal(derived.x, again.x));
  EXPECT_TRUE(at::equal(derived.weight, again.weight));
}

template <class K>
void expect_operators_of_all_shapes(const K& kernels) {
  for (const int64_t width : {1, 5, 32, 129, 300}) expect_operators(kernels, 3, width, 2);
  expect_operators(kernels, 1, 64, 1);
  expect_operators(kernels, 70, 33, 40);
}

using kernel::BFloat16;
using kernel::Half;

TEST(RmsNormSource, EqualsTheOperatorsInFp32) {
  expect_operators_of_all_shapes(Kernels<float, float>{at::kFloat, at::kFloat, rms_norm_fp32_fp32,
                                                       rms_norm_backward_fp32_fp32, rms_norm_sum_fp32});
}

TEST(RmsNormSource, EqualsTheOperatorsInHalfTypes) {
  expect_operators_of_all_shapes(Kernels<BFloat16, BFloat16>{at::kBFloat16, at::kBFloat16, rms_norm_bf16_bf16,
                                                             rms_norm_backward_bf16_bf16, rms_norm_sum_bf16});
  expect_operators_of_all_shapes(
      Kernels<Half, Half>{at::kHalf, at::kHalf, rms_norm_fp16_fp16, rms_norm_backward_fp16_fp16, rms_norm_sum_fp16});
}

TEST(RmsNormSource, EqualsTheOperatorsInMixedTypes) {
  expect_operators_of_all_shapes(Kernels<BFloat16, float>{at::kBFloat16, at::kFloat, rms_norm_bf16_fp32,
                                                          rms_norm_backward_bf16_fp32, rms_norm_sum_fp32});
  expect_operators_of_all_shapes(
      Kernels<Half, float>{at::kHalf, at::kFloat, rms_norm_fp16_fp32, rms_norm_backward_fp16_fp32, rms_norm_sum_fp32});
  expect_operators_of_all_shapes(Kernels<float, BFloat16>{at::kFloat, at::kBFloat16, rms_norm_fp32_bf16,
                                                          rms_norm_backward_fp32_bf16, rms_norm_sum_bf16});
  expect_operators_of_all_shapes(
      Kernels<float, Half>{at::kFloat, at::kHalf, rms_norm_fp32_fp16, rms_norm_backward_fp32_fp16, rms_norm_sum_fp16});
}

TEST(RmsNormSource, ARowIsTheSameAmongOthers) {
  const Kernels<float, float> kernels{at::kFloat, at::kFloat, rms_norm_fp32_fp32, rms_norm_backward_fp32_fp32,
                                      rms_norm_sum_fp32};
  const at::Tensor x = random_tensor({4, 200});
  const at::Tensor weight = random_tensor({200}, 2);
  const at::Tensor all = run_forward(kernels, {x, weight, {}}, Order::kForward).y;
  EXPECT_TRUE(at::equal(all.narrow(0, 2, 1), run_forward(kernels, {x.narrow(0, 2, 1), weight, {}}, Order::kForward).y));
}

TEST(CudaShim, ThreadsThatWaitAtDifferentBarriersAreAnError) {
  EXPECT_THROW(cuda_shim::run_grid({1}, {64},
                                   [] {
                                     if (threadIdx.x < 16) __syncthreads();
                                     if (threadIdx.x >= 16) __shfl_xor_sync(0xffffffffu, 1, 1);
                                   }),
               std::logic_error);
}

}  // namespace
}  // namespace draftsmith::model
