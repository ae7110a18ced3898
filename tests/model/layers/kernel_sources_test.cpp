// Sources of the kernels of layers, run on the host: they equal the operators on the CPU, and a row's numbers are the
// same among any others. And the gate of all: they compile for every architecture, without spills.
#include <map>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/layers/linear_rows.h"
#include "model/layers/rms_norm.h"
#include "model/layers/step_operators.h"
#include "tests/support/cuda_shim.h"
#include "tests/support/kernel_gate.h"
#include "tests/support/tensors.h"
// The shim comes first.
#include "model/layers/kernels/linear_rows.cu"
#include "model/layers/kernels/rms_norm.cu"
#include "model/layers/kernels/step.cu"
#include "model/layers/kernels/step_places.cu"
#include "model/layers/kernels/tensor_rows.cu"

namespace draftsmith::model {
namespace {

using cuda_shim::Order;
using cuda_shim::run_kernel;
using kernel::BFloat16;
using kernel::Half;

template <class X>
using LinearKernel = void (*)(const X*, const X*, float, const X*, const X*, const X*, const X*, const X*, X*, int, int,
                              int, int);

// Kernels of one dtype by name.
template <class X>
struct LinearKernels {
  at::ScalarType type;
  std::map<std::string, LinearKernel<X>> by_name;
};

#define LINEAR_KERNEL(name) \
  { #name, name }
#define ROWS_KERNELS(name)                                                                            \
  LINEAR_KERNEL(name##_1), LINEAR_KERNEL(name##_2), LINEAR_KERNEL(name##_4), LINEAR_KERNEL(name##_8), \
      LINEAR_KERNEL(name##_16)
#define TENSOR_KERNELS(name)                                                                                      \
  LINEAR_KERNEL(name##_8_8), LINEAR_KERNEL(name##_8_16), LINEAR_KERNEL(name##_16_8), LINEAR_KERNEL(name##_16_16), \
      LINEAR_KERNEL(name##_32_8), LINEAR_KERNEL(name##_32_16)

const LinearKernels<float> kFp32{at::kFloat, {ROWS_KERNELS(linear_rows_fp32), ROWS_KERNELS(normed_rows_fp32)}};
const LinearKernels<Half> kFp16{at::kHalf, {ROWS_KERNELS(linear_rows_fp16), ROWS_KERNELS(normed_rows_fp16)}};
const LinearKernels<BFloat16> kBf16{at::kBFloat16,
                                    {TENSOR_KERNELS(linear_rows_bf16), TENSOR_KERNELS(normed_rows_bf16)}};

// The arguments of one call.
struct LinearCase {
  at::Tensor x;  // [rows,in]
  InputNorm norm;
  LinearWeights layer, up;
  PostOp then = PostOp::kNone;
  at::Tensor residual;
};

template <class K>
at::Tensor run_linear(const K& kernels, const LinearCase& in, Order order = Order::kForward) {
  const int64_t rows = in.x.size(0), outputs = in.layer.weight.size(0);
  const at::Tensor y = at::full({rows, outputs}, 77, in.x.options());
  const LinearRowsKernel chosen =
      linear_rows_kernel(kernels.type, rows, outputs, in.norm.weight.defined(), in.up.weight.defined());
  run_kernel(kernels.by_name.at(chosen.name), chosen.blocks, {static_cast<unsigned>(chosen.threads)}, order, in.x,
             in.norm.weight, in.norm.epsilon, in.layer.weight, in.layer.bias, in.up.weight, in.up.bias, in.residual, y,
             rows, in.x.size(1), outputs, in.then);
  return y;
}

template <class K>
LinearWeights random_layer(const K& kernels, int64_t outputs, int64_t inputs, uint64_t seed) {
  return {(random_tensor({outputs, inputs}, seed) / 4).to(kernels.type),
          random_tensor({outputs}, seed + 1, kernels.type)};
}

// The same in fp64, of which kernels' results are roundings.
at::Tensor exact(const LinearCase& in) {
  const auto wide = [](const at::Tensor& numbers) { return numbers.defined() ? numbers.to(at::kDouble) : numbers; };
  const auto wide_layer = [&](const LinearWeights& layer) {
    return LinearWeights{wide(layer.weight), wide(layer.bias)};
  };
  return linear_rows(wide(in.x), {wide(in.norm.weight), in.norm.epsilon}, wide_layer(in.layer), in.then,
                     wide(in.residual), wide_layer(in.up));
}

template <class K>
void expect_exact(const K& kernels, const LinearCase& in) {
  const at::Tensor found = run_linear(kernels, in), expected = exact(in);
  SCOPED_TRACE(fmt::format("{} x [{},{}] {} outputs, then {}, gated {}", at::toString(kernels.type), in.x.size(0),
                           in.x.size(1), in.layer.weight.size(0), static_cast<int>(in.then), in.up.weight.defined()));
  // Normed inputs of bf16 are rounded before they are multiplied.
  const double bf16_unit = in.norm.weight.defined() ? 1.5e-2 : 5e-3;
  const double unit = kernels.type == at::kFloat ? 1e-6 : kernels.type == at::kHalf ? 6e-4 : bf16_unit;
  EXPECT_LE(difference(found, expected), unit * std::max(1.0, largest(expected)));
}

// All numbers of rows, widths of one vector to several rounds, outputs that leave a warp unfilled.
template <class K>
void expect_linear_rows(const K& kernels) {
  const int64_t vector = 16 / static_cast<int64_t>(c10::elementSize(kernels.type));
  for (int64_t rows = 1; rows <= most_linear_rows(kernels.type); ++rows) {
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
  const int64_t inputs = 45 * 16, most = most_linear_rows(kernels.type);
  LinearCase all;
  all.x = random_tensor({most, inputs}, 1, kernels.type);
  all.layer = random_layer(kernels, 7, inputs, 2);
  all.then = PostOp::kSilu;
  all.residual = random_tensor({most, 7}, 6, kernels.type);
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
    for (const int64_t rows : {1, 2, 3, 5, 8, 11}) expect_rows(most - rows, rows);
    expect_rows(0, 16);
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

// ---- RMS norms ----

// Kernels of one pair of dtypes.
template <class X, class W>
struct Kernels {
  at::ScalarType x, weight;
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

template <class K>
RmsNormed run_forward(const K& kernels, const NormTensors& input, Order order) {
  const int64_t rows = input.x.size(0);
  const auto width = static_cast<int>(input.x.size(1));
  RmsNormed result{at::full_like(input.x, 77, input.weight.options()), at::empty({rows}, at::kFloat)};
  run_kernel(kernels.forward, rows, {rms_norm_threads(width)}, order, input.x, input.weight, result.y, result.inverse,
             width, 1e-6);
  return result;
}

template <class K>
RmsNormGradients run_backward(const K& kernels, const NormTensors& input, const at::Tensor& inverse, unsigned parts,
                              Order order) {
  const int64_t rows = input.x.size(0);
  const auto width = static_cast<int>(input.x.size(1));
  RmsNormGradients result{at::full_like(input.x, 77), at::full_like(input.weight, 77)};
  const at::Tensor partial = at::full({parts, width}, NAN, inverse.options());
  run_kernel(kernels.backward, parts, {rms_norm_threads(width)}, order, input.gradient, input.x, input.weight, inverse,
             result.x, partial, rows, width);
  run_kernel(kernels.sum, (width + 31) / 32, {32, 32}, order, partial, result.weight, parts, width);
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

TEST(RmsNormSource, EqualsTheOperators) {
  expect_operators_of_all_shapes(Kernels<float, float>{at::kFloat, at::kFloat, rms_norm_fp32_fp32,
                                                       rms_norm_backward_fp32_fp32, rms_norm_sum_fp32});
  expect_operators_of_all_shapes(Kernels<BFloat16, BFloat16>{at::kBFloat16, at::kBFloat16, rms_norm_bf16_bf16,
                                                             rms_norm_backward_bf16_bf16, rms_norm_sum_bf16});
  expect_operators_of_all_shapes(
      Kernels<Half, float>{at::kHalf, at::kFloat, rms_norm_fp16_fp32, rms_norm_backward_fp16_fp32, rms_norm_sum_fp32});
  expect_operators_of_all_shapes(Kernels<float, BFloat16>{at::kFloat, at::kBFloat16, rms_norm_fp32_bf16,
                                                          rms_norm_backward_fp32_bf16, rms_norm_sum_bf16});
}

TEST(CudaShim, ThreadsThatWaitAtDifferentBarriersAreAnError) {
  EXPECT_THROW(cuda_shim::run_grid({1}, {64},
                                   [] {
                                     if (threadIdx.x < 16) __syncthreads();
                                     if (threadIdx.x >= 16) __shfl_xor_sync(0xffffffffu, 1, 1);
                                   }),
               std::logic_error);
}

// ---- Steps: attention, writes, rotations, places ----

struct StepShape {
  int64_t tokens = 1, heads = 2, shared = 2, width = 8, slots = 12;
  bool bias = true, own = false;
};

struct StepCase {
  CachedAttentionInput input;
  VisibleSlots slots;
};

// Three rows in a cache of four, out of order; one row sees nothing where it has no slot of its own.
StepCase make_case(const StepShape& shape, at::ScalarType type) {
  const int64_t rows = 3, inner = shape.heads * shape.width;
  StepCase made;
  made.input.query = random_tensor({rows, shape.tokens, inner + 4}, 1, type).narrow(2, 0, inner);
  made.input.keys = random_tensor({4, shape.shared, shape.slots, shape.width}, 2, type);
  made.input.values = random_tensor({4, shape.shared, shape.slots, shape.width}, 3, type);
  if (shape.bias) made.input.bias_table = random_tensor({shape.heads, shape.slots - 2}, 4, type);
  made.input.scale = 0.5;
  const at::Tensor first = at::tensor({shape.slots - shape.tokens - 1, int64_t{0}, shape.slots / 2}, at::kLong);
  const at::Tensor offset = at::arange(shape.tokens, at::kLong);
  made.slots.row = at::tensor({3, 0, 2}, at::kLong);
  made.slots.position = (first.unsqueeze(1) + (shape.own ? 0 : 1) * offset).contiguous();
  made.slots.prefix = made.slots.position.clone();
  if (shape.own) made.slots.own = (first.unsqueeze(1) + offset).contiguous();
  return made;
}

template <class Kernel>
at::Tensor attended(const StepCase& given, const Kernel& kernel, Order order) {
  const CachedAttentionInput& in = given.input;
  const VisibleSlots& slots = given.slots;
  const int64_t tokens = in.query.size(1);
  const at::Tensor out = at::full({in.query.size(0), tokens, in.query.size(2)}, 77, in.query.options());
  run_kernel(kernel, in.query.size(0) * tokens * in.heads(), {256}, order, in.query, out, in.keys, in.values, slots.row,
             slots.prefix, slots.own, slots.position, in.bias_table,
             in.bias_table.defined() ? in.bias_table.size(1) : 0, tokens, in.heads(), in.keys.size(1), in.keys.size(2),
             in.keys.size(3), in.query.stride(0), in.query.stride(1), in.scale);
  return out;
}

// Half types are compared with fp32 numbers of the same inputs.
CachedAttentionInput widened(const CachedAttentionInput& input) {
  const auto wide = [](const at::Tensor& x) { return x.defined() ? x.to(at::kFloat) : x; };
  return {wide(input.query), wide(input.keys), wide(input.values), wide(input.bias_table), input.scale};
}

template <class Kernel>
void expect_attention(const Kernel& kernel, at::ScalarType type, double most) {
  for (const StepShape& shape :
       {StepShape{}, StepShape{.tokens = 5, .bias = false}, StepShape{.tokens = 3, .own = true},
        StepShape{.heads = 4, .shared = 2, .width = 6}, StepShape{.width = 130, .slots = 9},
        StepShape{.tokens = 2, .heads = 1, .shared = 1, .slots = 600},
        StepShape{.tokens = 2, .heads = 1, .shared = 1, .width = 64, .slots = 300, .own = true},
        StepShape{.heads = 1, .shared = 1, .width = 80, .slots = 40},
        StepShape{.heads = 1, .shared = 1, .width = 256}}) {
    SCOPED_TRACE(
        fmt::format("{} L {} H {} K {} T {}", at::toString(type), shape.tokens, shape.heads, shape.width, shape.slots));
    const StepCase given = make_case(shape, type);
    const at::Tensor expected = attend(widened(given.input), given.slots, shape.slots);
    const at::Tensor found = attended(given, kernel, Order::kForward);
    EXPECT_LT(difference(found, expected), most * largest(expected.to(at::kDouble)));
    EXPECT_TRUE(at::equal(found, attended(given, kernel, Order::kBackward)));
  }
}

TEST(StepSource, AttentionEqualsTheOperators) {
  expect_attention(attend_fp32, at::kFloat, 1e-5);
  expect_attention(attend_bf16, at::kBFloat16, 6e-3);
  expect_attention(attend_fp16, at::kHalf, 8e-4);
}

TEST(StepSource, WritesEqualTheOperators) {
  const int64_t tokens = 3;
  const at::Tensor joined = random_tensor({2, tokens, 20}, 1);  // key and value lie side by side
  const at::Tensor key = joined.narrow(2, 4, 8), value = joined.narrow(2, 12, 8), row = at::tensor({2, 0}, at::kLong);
  const at::Tensor slot = at::tensor({4, 5, 6, 1, 6, 6}, at::kLong).view({2, 3});
  const at::Tensor expected_keys = at::zeros({3, 2, 7, 4}), expected_values = at::zeros({3, 2, 7, 4});
  write_at(expected_keys, expected_values, key, value, row, slot);
  const at::Tensor keys = at::zeros({3, 2, 7, 4}), values = at::zeros({3, 2, 7, 4});
  run_kernel(write_slots_fp32, 1, {256}, Order::kForward, keys, values, key, value, row, slot, key.numel(), tokens, 2,
             7, 4, key.stride(0), key.stride(1), value.stride(0), value.stride(1));
  // Slot 6 is the spare one, which several tokens may write.
  EXPECT_TRUE(at::equal(keys.narrow(2, 0, 6), expected_keys.narrow(2, 0, 6)));
  EXPECT_TRUE(at::equal(values.narrow(2, 0, 6), expected_values.narrow(2, 0, 6)));
}

template <class Kernel>
void expect_rotation(const Kernel& kernel, at::ScalarType type) {
  const at::Tensor cosine = random_tensor({9, 3}, 5, type), sine = random_tensor({9, 3}, 6, type);
  const at::Tensor position = at::tensor({4, 8, 0, 2}, at::kLong).view({2, 2});
  const at::Tensor expected = random_tensor({2, 2, 3 * 8}, 7, type);  // heads of 8, of which 6 are rotated
  const at::Tensor found = expected.clone();
  rotate_at(expected, cosine, sine, position, 8);
  run_kernel(kernel, 1, {256}, Order::kForward, found, cosine, sine, position, 2 * 2 * 3 * 3, 2, 3, 8, 3,
             found.stride(0), found.stride(1));
  EXPECT_TRUE(at::equal(found, expected)) << at::toString(type) << ' ' << difference(found, expected);
}

TEST(StepSource, RotationEqualsTheOperatorsToTheBit) {
  expect_rotation(rotate_fp32, at::kFloat);
  expect_rotation(rotate_bf16, at::kBFloat16);
  expect_rotation(rotate_fp16, at::kHalf);
}

TEST(StepPlacesSource, EqualsTheCpusPlaces) {
  const at::Tensor base = at::tensor({4, 0, 9, 7}, at::kLong);
  const at::Tensor rows = at::tensor({3, 0, 2, 1, 1, 1, 0, 0, 5, 5, 8, 8}, at::kLong).view({3, 4});
  for (const int64_t tokens : {1, 5, 100}) {
    const at::Tensor fresh = at::tensor({int64_t{1}, tokens, int64_t{0}, std::min<int64_t>(tokens, 3)}, at::kLong);
    const at::Tensor expected = step_places(base, fresh, rows, tokens, 33), packed = at::full_like(expected, -7);
    run_kernel(::step_places, (4 * tokens + 255) / 256, {256}, Order::kForward, base, fresh, rows, packed, 4, tokens,
               33);
    EXPECT_TRUE(packed.equal(expected)) << tokens;
  }
}

TEST(KernelGateOfLayers, CompileWithoutSpills) {
  if (const auto missing = nvrtc_missing()) GTEST_SKIP() << *missing;
  expect_good_kernels(rms_norm_source(), 17, 64);
  expect_good_kernels(step_places_source(), 1, 64);
  for (const at::ScalarType type : kLinearRowsTypes) {
    expect_good_kernels(linear_rows_source(type), type == at::kBFloat16 ? 12 : 10, type == at::kBFloat16 ? 128 : 255);
    expect_good_kernels(step_source(type), 3, 128);
  }
}

}  // namespace
}  // namespace draftsmith::model
