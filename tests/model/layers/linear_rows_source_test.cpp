// The source of the kernels for linear layers of few rows, run on the host: it equals the operators on the CPU, and a
// row's numbers are the same among any others.
#include <map>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/layers/linear_rows.h"
#include "model/layers/linear_rows_gpu.h"
#include "tests/support/cuda_shim.h"
#include "tests/support/kernel_gate.h"
#include "tests/support/tensors.h"
// The shim comes first.
#include "model/layers/kernels/linear_rows.cu"
#include "model/layers/kernels/tensor_rows.cu"

namespace draftsmith::model {
namespace {

using cuda_shim::Order;
using kernel::BFloat16;
using kernel::Half;

template <class X>
using LinearKernel = void (*)(const X*, const X*, float, const X*, const X*, const X*, const X*, const X*, X*, int, int,
                              int, int);

// Kernels of one dtype by name.
template <class X_>
struct LinearKernels {
  using X = X_;
  at::ScalarType type;
  std::map<std::string, LinearKernel<X>> by_name;
};

#define LINEAR_KERNEL(name) \
  { #name, name }
#define ROWS_KERNELS(name)                                                                            \
  LINEAR_KERNEL(name##_1), LINEAR_KERNEL(name##_2), LINEAR_KERNEL(name##_4), LINEAR_KERNEL(name##_8), \
      LINEAR_KERNEL(name##_16)
#define TENSOR_KERNELS(name) \
  LINEAR_KERNEL(name##_8_8), LINEAR_KERNEL(name##_8_16), LINEAR_KERNEL(name##_16_8), LINEAR_KERNEL(name##_16_16)

const LinearKernels<float> kFp32{at::kFloat, {ROWS_KERNELS(linear_rows_fp32), ROWS_KERNELS(normed_rows_fp32)}};
const LinearKernels<Half> kFp16{at::kHalf, {ROWS_KERNELS(linear_rows_fp16), ROWS_KERNELS(normed_rows_fp16)}};
const LinearKernels<BFloat16> kBf16{at::kBFloat16,
                                    {TENSOR_KERNELS(linear_rows_bf16), TENSOR_KERNELS(normed_rows_bf16)}};

// The arguments of one call.
struct LinearCase {
  at::Tensor x;  // [rows,in]
  InputNorm norm;
  LinearWeights layer;
  LinearWeights up;
  PostOp then = PostOp::kNone;
  at::Tensor residual;
};

template <class T>
T* linear_data(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
}

template <class K>
at::Tensor run_linear(const K& kernels, const LinearCase& in, Order order = Order::kForward) {
  using X = typename K::X;
  const int64_t rows = in.x.size(0);
  const int64_t outputs = in.layer.weight.size(0);
  const at::Tensor y = at::full({rows, outputs}, 77, in.x.options());
  const LinearRowsKernel chosen =
      linear_rows_kernel(kernels.type, rows, outputs, in.norm.weight.defined(), in.up.weight.defined());
  const auto kernel = kernels.by_name.at(chosen.name);
  cuda_shim::run_grid(
      {static_cast<unsigned>(chosen.blocks)}, {static_cast<unsigned>(chosen.threads)},
      [&] {
        kernel(linear_data<X>(in.x), linear_data<X>(in.norm.weight), static_cast<float>(in.norm.epsilon),
               linear_data<X>(in.layer.weight), linear_data<X>(in.layer.bias), linear_data<X>(in.up.weight),
               linear_data<X>(in.up.bias), linear_data<X>(in.residual), linear_data<X>(y), static_cast<int>(rows),
               static_cast<int>(in.x.size(1)), static_cast<int>(outputs), static_cast<int>(in.then));
      },
      order);
  return y;
}

template <class K>
LinearWeights random_layer(const K& kernels, int64_t outputs, int64_t inputs, uint64_t seed) {
  return {(random_tensor({outputs, inputs}, seed) / 4).to(kernels.type),
          random_tensor({outputs}, seed + 1, kernels.type)};
}

// The same in fp64, of which kernels' results are roundings.
at::Tensor exact(const LinearCase& in) {
  const auto wide = [](const LinearWeights& layer) {
    return LinearWeights{layer.weight.to(at::kDouble), layer.bias.defined() ? layer.bias.to(at::kDouble) : layer.bias};
  };
  const at::Tensor x = in.x.to(at::kDouble);
  InputNorm norm = in.norm;
  if (norm.weight.defined()) norm.weight = norm.weight.to(at::kDouble);
  if (in.up.weight.defined()) return gated_rows(x, norm, wide(in.layer), wide(in.up), in.then);
  return linear_rows(x, norm, wide(in.layer), in.then,
                     in.residual.defined() ? in.residual.to(at::kDouble) : in.residual);
}

// Normed inputs of bf16 are rounded before they are multiplied.
double linear_unit(at::ScalarType type, bool normed) {
  return type == at::kFloat ? 1e-6 : type == at::kHalf ? 6e-4 : normed ? 1.5e-2 : 5e-3;
}

template <class K>
void expect_exact(const K& kernels, const LinearCase& in) {
  const at::Tensor found = run_linear(kernels, in);
  const at::Tensor expected = exact(in);
  SCOPED_TRACE(fmt::format("{} x [{},{}] {} outputs, then {}, gated {}", at::toString(kernels.type), in.x.size(0),
                           in.x.size(1), in.layer.weight.size(0), static_cast<int>(in.then), in.up.weight.defined()));
  EXPECT_LE(difference(found, expected),
            linear_unit(kernels.type, in.norm.weight.defined()) * std::max(1.0, largest(expected)));
}

// All numbers of rows, widths of one vector to several rounds, outputs that leave a warp unfilled.
template <class K>
void expect_linear_rows(const K& kernels) {
  const int64_t vector = 16 / static_cast<int64_t>(sizeof(typename K::X));
  for (int64_t rows = 1; rows <= kMostLinearRows; ++rows) {
    const int64_t inputs = rows % 3 == 0 ? vector : rows % 3 == 1 ? 37 * vector : 150 * vector;
    const int64_t outputs = 3 + rows;
    const auto then = static_cast<PostOp>(rows % 5);
    LinearCase in;
    in.x = random_tensor({rows, inputs}, 1, kernels.type);
    in.layer = random_layer(kernels, outputs, inputs, 2);
    in.then = then;
    expect_exact(kernels, in);
    in.residual = random_tensor({rows, outputs}, 3, kernels.type);
    if (rows % 2 == 0) in.layer.bias = at::Tensor();
    expect_exact(kernels, in);
    in.norm = {random_tensor({inputs}, 7, kernels.type), 1e-2};
    expect_exact(kernels, in);
    in.residual = at::Tensor();
    in.up = random_layer(kernels, outputs, inputs, 5);
    expect_exact(kernels, in);
    in.norm = {};
    expect_exact(kernels, in);
  }
}

// Rows alone, and the first ones of any number of rows.
template <class K>
void expect_the_same_rows(const K& kernels) {
  const int64_t inputs = 45 * 16;
  LinearCase all;
  all.x = random_tensor({kMostLinearRows, inputs}, 1, kernels.type);
  all.layer = random_layer(kernels, 7, inputs, 2);
  all.then = PostOp::kSilu;
  all.residual = random_tensor({kMostLinearRows, 7}, 6, kernels.type);
  for (const int kind : {0, 1, 2, 3}) {
    all.up = kind % 2 == 1 ? random_layer(kernels, 7, inputs, 4) : LinearWeights();
    all.norm = kind / 2 == 1 ? InputNorm{random_tensor({inputs}, 8, kernels.type), 1e-6} : InputNorm();
    const at::Tensor expected = run_linear(kernels, all);
    EXPECT_TRUE(at::equal(expected, run_linear(kernels, all, Order::kBackward)));
    const auto expect_rows = [&](int64_t first, int64_t count) {
      LinearCase some = all;
      some.x = all.x.narrow(0, first, count).clone();
      some.residual = all.residual.narrow(0, first, count).clone();
      EXPECT_TRUE(at::equal(run_linear(kernels, some), expected.narrow(0, first, count)))
          << at::toString(kernels.type) << ' ' << count << " rows from " << first << ", kind " << kind;
    };
    for (int64_t row = 0; row < kMostLinearRows; ++row) expect_rows(row, 1);
    for (int64_t rows = 2; rows < kMostLinearRows; ++rows) expect_rows(kMostLinearRows - rows, rows);
  }
}

TEST(LinearRowsSource, EqualsTheOperators) {
  expect_linear_rows(kFp32);
  expect_linear_rows(kBf16);
  expect_linear_rows(kFp16);
}

TEST(LinearRowsSource, ARowIsTheSameAmongOthersToTheBit) {
  expect_the_same_rows(kFp32);
  expect_the_same_rows(kBf16);
  expect_the_same_rows(kFp16);
}

TEST(LinearRowsSource, ActivationsKeepNan) {
  for (const PostOp then : {PostOp::kNone, PostOp::kRelu, PostOp::kGelu, PostOp::kGeluTanh, PostOp::kSilu}) {
    LinearCase in;
    in.x = random_tensor({3, 64});
    in.layer = random_layer(kFp32, 5, 64, 2);
    in.then = then;
    in.x[1][7] = NAN;
    const at::Tensor rows = run_linear(kFp32, in).isnan().all(1);
    EXPECT_TRUE(rows.equal(at::tensor({0, 1, 0}, at::kLong).to(at::kBool))) << static_cast<int>(then);
  }
}

TEST(KernelGateOfLinearRows, CompileWithoutSpills) {
  if (const auto missing = nvrtc_missing()) GTEST_SKIP() << *missing;
  for (const at::ScalarType type : kLinearRowsTypes) {
    expect_good_kernels(linear_rows_source(type), type == at::kBFloat16 ? 8 : 10, type == at::kBFloat16 ? 128 : 255);
  }
}

}  // namespace
}  // namespace draftsmith::model
