// The source of the step's kernels, run on the host: it equals the operators on the CPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/layers/step_gpu.h"
#include "model/layers/step_operators.h"
#include "tests/support/cuda_shim.h"
#include "tests/support/kernel_gate.h"
#include "tests/support/tensors.h"
// The shim comes first.
#include "model/layers/kernels/step.cu"

namespace draftsmith::model {
namespace {

using cuda_shim::Order;

struct StepShape {
  int64_t tokens = 1;
  int64_t heads = 2;
  int64_t shared = 2;
  int64_t width = 8;
  int64_t slots = 12;
  bool bias = true;
  bool own = false;
};

struct StepCase {
  CachedAttentionInput input;
  VisibleSlots slots;
};

template <class T>
T* step_data(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
}

const long long* ids_of(const at::Tensor& tensor) {
  return tensor.defined() ? reinterpret_cast<const long long*>(tensor.const_data_ptr<int64_t>()) : nullptr;
}

// Three rows in a cache of four, out of order; one row sees nothing where it has no slot of its own.
StepCase make_case(const StepShape& shape, at::ScalarType type) {
  const int64_t rows = 3;
  const int64_t inner = shape.heads * shape.width;
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

template <class T, class Kernel>
at::Tensor attended(const StepCase& given, const Kernel& kernel, Order order) {
  const CachedAttentionInput& in = given.input;
  const auto heads = static_cast<int>(in.heads());
  const auto tokens = static_cast<int>(in.query.size(1));
  const at::Tensor out = at::full({in.query.size(0), tokens, in.query.size(2)}, 77, in.query.options());
  cuda_shim::run_grid(
      {static_cast<unsigned>(in.query.size(0) * tokens * heads)}, {256},
      [&] {
        kernel(step_data<T>(in.query), step_data<T>(out), step_data<T>(in.keys), step_data<T>(in.values),
               ids_of(given.slots.row), ids_of(given.slots.prefix), ids_of(given.slots.own),
               ids_of(given.slots.position), step_data<T>(in.bias_table),
               in.bias_table.defined() ? static_cast<int>(in.bias_table.size(1)) : 0, tokens, heads,
               static_cast<int>(in.keys.size(1)), static_cast<int>(in.keys.size(2)), static_cast<int>(in.keys.size(3)),
               in.query.stride(0), in.query.stride(1), in.scale);
      },
      order);
  return out;
}

// Half types are compared with fp32 numbers of the same inputs.
CachedAttentionInput widened(const CachedAttentionInput& input) {
  const auto wide = [](const at::Tensor& x) { return x.defined() ? x.to(at::kFloat) : x; };
  return {wide(input.query), wide(input.keys), wide(input.values), wide(input.bias_table), input.scale};
}

template <class T, class Kernel>
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
    const at::Tensor found = attended<T>(given, kernel, Order::kForward);
    EXPECT_LT(difference(found, expected), most * largest(expected.to(at::kDouble)));
    EXPECT_TRUE(at::equal(found, attended<T>(given, kernel, Order::kBackward)));
  }
}

using kernel::BFloat16;
using kernel::Half;

TEST(StepSource, AttentionEqualsTheOperators) {
  expect_attention<float>(attend_fp32, at::kFloat, 1e-5);
  expect_attention<BFloat16>(attend_bf16, at::kBFloat16, 6e-3);
  expect_attention<Half>(attend_fp16, at::kHalf, 8e-4);
}

TEST(StepSource, AQuerysContextIsTheSameAlone) {
  const StepCase many = make_case({.tokens = 4, .slots = 300}, at::kFloat);
  StepCase one = many;
  one.input.query = many.input.query.narrow(1, 2, 1);
  one.slots.prefix = many.slots.prefix.narrow(1, 2, 1).contiguous();
  one.slots.position = many.slots.position.narrow(1, 2, 1).contiguous();
  EXPECT_TRUE(at::equal(attended<float>(one, attend_fp32, Order::kForward),
                        attended<float>(many, attend_fp32, Order::kForward).narrow(1, 2, 1)));
}

TEST(StepSource, WritesEqualTheOperators) {
  const int64_t tokens = 3;
  const at::Tensor joined = random_tensor({2, tokens, 20}, 1);  // key and value lie side by side
  const at::Tensor key = joined.narrow(2, 4, 8);
  const at::Tensor value = joined.narrow(2, 12, 8);
  const at::Tensor row = at::tensor({2, 0}, at::kLong);
  const at::Tensor slot = at::tensor({4, 5, 6, 1, 6, 6}, at::kLong).view({2, 3});
  const at::Tensor expected_keys = at::zeros({3, 2, 7, 4});
  const at::Tensor expected_values = at::zeros({3, 2, 7, 4});
  write_at(expected_keys, expected_values, key, value, row, slot);
  const at::Tensor keys = at::zeros({3, 2, 7, 4});
  const at::Tensor values = at::zeros({3, 2, 7, 4});
  cuda_shim::run_grid({1}, {256}, [&] {
    write_slots_fp32(step_data<float>(keys), step_data<float>(values), step_data<float>(key), step_data<float>(value),
                     ids_of(row), ids_of(slot), key.numel(), tokens, 2, 7, 4, key.stride(0), key.stride(1),
                     value.stride(0), value.stride(1));
  });
  // Slot 6 is the spare one, which several tokens may write.
  EXPECT_TRUE(at::equal(keys.narrow(2, 0, 6), expected_keys.narrow(2, 0, 6)));
  EXPECT_TRUE(at::equal(values.narrow(2, 0, 6), expected_values.narrow(2, 0, 6)));
}

template <class T, class Kernel>
void expect_rotation(const Kernel& kernel, at::ScalarType type) {
  const at::Tensor cosine = random_tensor({9, 3}, 5, type);
  const at::Tensor sine = random_tensor({9, 3}, 6, type);
  const at::Tensor position = at::tensor({4, 8, 0, 2}, at::kLong).view({2, 2});
  const at::Tensor expected = random_tensor({2, 2, 3 * 8}, 7, type);  // heads of 8, of which 6 are rotated
  const at::Tensor found = expected.clone();
  rotate_at(expected, cosine, sine, position, 8);
  cuda_shim::run_grid({1}, {256}, [&] {
    kernel(step_data<T>(found), step_data<T>(cosine), step_data<T>(sine), ids_of(position), 2 * 2 * 3 * 3, 2, 3, 8, 3,
           found.stride(0), found.stride(1));
  });
  EXPECT_TRUE(at::equal(found, expected)) << at::toString(type) << ' ' << difference(found, expected);
}

TEST(StepSource, RotationEqualsTheOperatorsToTheBit) {
  expect_rotation<float>(rotate_fp32, at::kFloat);
  expect_rotation<BFloat16>(rotate_bf16, at::kBFloat16);
  expect_rotation<Half>(rotate_fp16, at::kHalf);
}

TEST(StepSource, CompilesForGpus) {
  if (const auto missing = nvrtc_missing()) GTEST_SKIP() << *missing;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    expect_good_kernels(step_source(type), 3, 128);
  }
}

}  // namespace
}  // namespace draftsmith::model
