// Step programs by the kernel's source on the host: the same numbers, to the bit, as the kernels of single operators.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/layers/linear_rows.h"
#include "model/layers/linear_rows_gpu.h"
#include "model/layers/step_operators.h"
#include "model/layers/step_program.h"
#include "tests/support/kernel_gate.h"
#include "tests/support/step_program_shim.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

using cuda_shim::Order;

// A decoder layer on the host: rotated self-attention over grouped heads, or T5's with a bias; a cross-attention; a
// feed-forward layer with a gate or without.
struct LayerCase {
  int64_t rows = 2;
  int64_t tokens = 1;
  bool llama = false;
  bool siblings = false;
};

constexpr int64_t kWidth = 48;
constexpr int64_t kHeads = 4;
constexpr int64_t kHeadWidth = 8;
constexpr int64_t kInner = kHeads * kHeadWidth;
constexpr int64_t kSlots = 300;

// Numbers of a layer by a seed, in one dtype.
class Numbers {
 public:
  explicit Numbers(at::ScalarType type) : type_(type) {}
  at::Tensor operator()(at::IntArrayRef shape, double scale = 1) {
    return random_tensor(shape, ++seed_, type_) * scale;
  }
  LinearWeights layer(int64_t outputs, int64_t inputs, bool bias = false) {
    return {(*this)({outputs, inputs}, 0.2), bias ? (*this)({outputs}) : at::Tensor(), {}};
  }
  InputNorm norm() { return {(*this)({kWidth}, 0.3) + 1, 1e-6}; }

 private:
  at::ScalarType type_;
  uint64_t seed_ = 0;
};

VisibleSlots seen_slots(const LayerCase& of) {
  const at::Tensor first = at::arange(of.rows, at::kLong).mul_(71).remainder_(kSlots - 40).unsqueeze(1);  // [B,1]
  const at::Tensor position = first + (of.siblings ? 0 : 1) * at::arange(of.tokens, at::kLong);           // [B,L]
  const at::Tensor own = of.siblings ? (first + at::arange(of.tokens, at::kLong)).contiguous() : at::Tensor();
  return {at::arange(of.rows - 1, -1, -1, at::kLong), (position + (of.siblings ? 0 : 1)).contiguous(), own,
          position.contiguous()};
}

// Calls the operators of a layer as Block::step() does. Returns its output.
at::Tensor step_through(const LayerCase& of, at::ScalarType type) {
  Numbers numbers(type);
  const int64_t shared = of.llama ? kHeads / 2 : kHeads;
  const int64_t keys = shared * kHeadWidth;
  at::Tensor x = numbers({of.rows, of.tokens, kWidth});
  const at::Tensor all = linear_rows(x, numbers.norm(), numbers.layer(kInner + 2 * keys, kWidth, of.llama),
                                     PostOp::kNone);  // [B,L,(H+2*kv)*K]
  const VisibleSlots slots = seen_slots(of);
  if (of.llama) {
    rotate_at(all.narrow(2, 0, kInner + keys), numbers({kSlots, kHeadWidth / 2}), numbers({kSlots, kHeadWidth / 2}),
              slots.position, kHeadWidth);
  }
  const at::Tensor key_cache = numbers({of.rows, shared, kSlots, kHeadWidth});
  const at::Tensor value_cache = numbers({of.rows, shared, kSlots, kHeadWidth});
  write_at(key_cache, value_cache, all.narrow(2, kInner, keys), all.narrow(2, kInner + keys, keys), slots.row,
           of.siblings ? slots.own : slots.position);
  const at::Tensor bias = of.llama ? at::Tensor() : numbers({kHeads, 90});
  at::Tensor context = attend({all.narrow(2, 0, kInner), key_cache, value_cache, bias, 0.3}, slots, kSlots);
  x = linear_rows(context, {}, numbers.layer(kWidth, kInner), PostOp::kNone, x);
  if (!of.llama) {
    const at::Tensor query = linear_rows(x, numbers.norm(), numbers.layer(kInner, kWidth), PostOp::kNone);
    const at::Tensor length = at::full({of.rows, of.tokens}, 17, at::kLong);
    context =
        attend({query, numbers({of.rows, kHeads, 32, kHeadWidth}), numbers({of.rows, kHeads, 32, kHeadWidth}), {}, 1},
               {slots.row, length, {}, length}, 32);
    x = linear_rows(context, {}, numbers.layer(kWidth, kInner), PostOp::kNone, x);
  }
  const InputNorm norm = numbers.norm();
  const LinearWeights first = numbers.layer(72, kWidth);
  const at::Tensor inner = of.llama ? gated_rows(x, norm, first, numbers.layer(72, kWidth), PostOp::kSilu)
                                    : linear_rows(x, norm, first, PostOp::kRelu);
  return linear_rows(inner, {}, numbers.layer(kWidth, 72), PostOp::kNone, x);
}

// A layer that was recorded; its program was not run.
struct Recorded {
  StepProgram program{step_counters(at::kCPU)};
  at::Tensor output;

  Recorded(const LayerCase& of, at::ScalarType type) {
    const StepRecording recording(&program);
    output = step_through(of, type);
  }
};

template <int kRows, class T>
void run_linear_alone(const kernel::LinearStep& step) {
  const auto of = [](const void* pointer) { return static_cast<const T*>(pointer); };
  const int64_t blocks = linear_rows_blocks(kRows, false, step.outputs, step.up == nullptr ? 1 : 2);
  const auto& compute =
      step.norm == nullptr ? kernel::linear_rows<false, kRows, T, T> : kernel::linear_rows<true, kRows, T, T>;
  cuda_shim::run_grid({static_cast<unsigned>(blocks)}, {64}, [&] {
    compute({of(step.x), of(step.norm), step.epsilon, step.rows, step.inputs},
            {of(step.weight), of(step.bias), nullptr}, {of(step.up), of(step.up_bias), nullptr}, of(step.residual),
            static_cast<T*>(step.y), step.outputs, step.then, blockIdx.x * 2 + threadIdx.x / 32);
  });
}

// Does an operation as its own kernel does (linear_rows.cu, step.cu).
template <class T>
void run_alone(const kernel::StepOperation& operation) {
  const auto of = [](const void* pointer) { return static_cast<const T*>(pointer); };
  if (operation.kind == kernel::kLinear) {
    const kernel::LinearStep& step = operation.linear;
    const auto run = step.rows == 1   ? &run_linear_alone<1, T>
                     : step.rows == 2 ? &run_linear_alone<2, T>
                     : step.rows <= 4 ? &run_linear_alone<4, T>
                     : step.rows <= 8 ? &run_linear_alone<8, T>
                                      : &run_linear_alone<16, T>;
    run(step);
  } else if (operation.kind == kernel::kAttend) {
    const kernel::AttendStep& step = operation.attend;
    cuda_shim::run_grid({static_cast<unsigned>(step.rows * step.tokens * step.heads)}, {256}, [&] {
      kernel::attend<T>(of(step.query), static_cast<T*>(step.context),
                        {of(step.keys), of(step.values), step.row, step.prefix, step.own, step.position, of(step.bias),
                         step.columns, step.shared, step.slots, step.width},
                        step.tokens, step.heads, step.row_stride, step.token_stride, step.scale);
    });
  } else if (operation.kind == kernel::kWrite) {
    const kernel::WriteStep& step = operation.write;
    for (long long i = 0; i < step.numbers; ++i) {
      kernel::write_slots(static_cast<T*>(step.key_cache), static_cast<T*>(step.value_cache), of(step.key),
                          of(step.value), step.row, step.slot, i, step.tokens, step.shared, step.slots, step.width,
                          step.key_row, step.key_token, step.value_row, step.value_token);
    }
  } else {
    const kernel::RotateStep& step = operation.rotate;
    for (long long i = 0; i < step.pairs; ++i) {
      kernel::rotate(static_cast<T*>(step.x), of(step.cosine), of(step.sine), step.position, i, step.tokens, step.heads,
                     step.width, step.half, step.row_stride, step.token_stride);
    }
  }
}

template <class T>
void expect_layer(const LayerCase& of, at::ScalarType type, double most) {
  SCOPED_TRACE(fmt::format("{} rows {} tokens {} llama {} siblings {}", at::toString(type), of.rows, of.tokens,
                           of.llama, of.siblings));
  const Recorded alone(of, type);
  const auto expected = alone.program.operations();
  ASSERT_EQ(expected.size(), of.llama ? 7u : 9u);
  const auto packed = std::make_unique<kernel::StepOperations>(packed_operations(expected));
  for (int i = 0; i < packed->count; ++i) run_alone<T>(packed->operations[i]);
  for (const auto& [blocks, order] : {std::pair{3u, Order::kForward}, {4u, Order::kBackward}}) {
    const Recorded together(of, type);
    const auto found = together.program.operations();
    run_steps_on_host(found, step_counters(at::kCPU), blocks, order);
    for (size_t i = 0; i < found.size(); ++i) {
      for (size_t j = 0; j < found[i].written.size(); ++j) {
        EXPECT_TRUE(at::equal(found[i].written[j], expected[i].written[j])) << "operation " << i << " of " << blocks;
      }
    }
  }
  Recorded by_operators(of, type);
  by_operators.program.run();
  EXPECT_LT(difference(by_operators.output, alone.output), most * largest(alone.output.to(at::kDouble)));
  EXPECT_TRUE(at::equal(by_operators.output, step_through(of, type)));
}

TEST(StepProgramSource, LayersInFp32EqualSingleKernelsToTheBit) {
  for (const LayerCase& of : {LayerCase{.rows = 1}, LayerCase{.rows = 3, .llama = true},
                              LayerCase{.rows = 4, .tokens = 4}, LayerCase{.rows = 2, .tokens = 2, .siblings = true}}) {
    expect_layer<float>(of, at::kFloat, 1e-5);
  }
}

TEST(StepProgramSource, LayersInHalfTypesEqualSingleKernelsToTheBit) {
  for (const LayerCase& of : {LayerCase{.rows = 5}, LayerCase{.rows = 2, .tokens = 5, .llama = true}}) {
    expect_layer<kernel::BFloat16>(of, at::kBFloat16, 3e-2);
  }
  expect_layer<kernel::Half>({.rows = 3, .llama = true}, at::kHalf, 5e-3);
}

// Nobody resets the counter, also where a grid comes after one of another program.
TEST(StepProgramSource, ProgramsFollowOneAnotherOverOneCounter) {
  const LayerCase of{.rows = 1};
  const Recorded once(of, at::kFloat);
  run_steps_on_host(once.program.operations(), step_counters(at::kCPU), 3);
  const at::Tensor counters = step_counters(at::kCPU);
  const Recorded again(of, at::kFloat);
  for (int64_t run = 1; run <= 3; ++run) {
    run_steps_on_host(again.program.operations(), counters, 3);
    EXPECT_TRUE(at::equal(again.output, once.output));
    EXPECT_EQ(counters[0].item<int64_t>(), run * 8 * 3);  // a barrier between two of nine operations
  }
  EXPECT_EQ(counters.slice(0, 1).count_nonzero().item<int64_t>(), 0);
}

TEST(StepProgramSource, LongProgramsAreSeveralLaunches) {
  StepProgram program(step_counters(at::kCPU));
  const at::Tensor x = random_tensor({1, 16}, 1);
  const LinearWeights layer{random_tensor({16, 16}, 2) / 4, {}, {}};
  at::Tensor y = x;
  at::Tensor expected = x;
  {
    const StepRecording recording(&program);
    for (int i = 0; i < kernel::kMostStepOperations + 3; ++i) y = linear_rows(y, {}, layer, PostOp::kRelu, x);
  }
  for (int i = 0; i < kernel::kMostStepOperations + 3; ++i) expected = x + at::relu(at::linear(expected, layer.weight));
  run_steps_on_host(program.operations(), step_counters(at::kCPU), 2);
  EXPECT_LT(difference(y, expected), 1e-4 * largest(expected));
}

// Weights are asked for one linear operation ahead, each once.
TEST(StepProgramSource, EachWeightIsAskedForOnce) {
  const Recorded recorded({}, at::kFloat);
  const auto packed = std::make_unique<kernel::StepOperations>(packed_operations(recorded.program.operations()));
  std::vector<int> asked;
  for (int i = 0; i < packed->count; ++i) asked.push_back(packed->operations[i].next_linear);
  EXPECT_EQ(asked, (std::vector<int>{3, -1, -1, 4, 6, -1, 7, 8, -1}));
}

// What no program takes runs at once, after what came before.
TEST(StepProgramSource, OtherOperatorsRunAtOnce) {
  StepProgram program(step_counters(at::kCPU));
  const at::Tensor x = random_tensor({1, 16}, 1);
  const LinearWeights layer{random_tensor({18, 16}, 2), {}, {}};
  const LinearWeights odd{random_tensor({4, 18}, 3), {}, {}};  // rows of 72 bytes
  at::Tensor y;
  {
    const StepRecording recording(&program);
    const at::Tensor inner = linear_rows(x, {}, layer, PostOp::kNone);
    EXPECT_EQ(program.operations().size(), 1u);
    y = linear_rows(inner, {}, odd, PostOp::kNone);
    EXPECT_TRUE(program.operations().empty());
  }
  EXPECT_LT(difference(y, at::linear(at::linear(x, layer.weight), odd.weight)), 1e-4);
}

// The shim shows a barrier that is missing: neighbours' numbers are not there yet.
TEST(GridBarrierSource, BlocksSeeWhatOthersWrote) {
  for (const Order order : {Order::kForward, Order::kBackward}) {
    for (const bool waits : {true, false}) {
      unsigned long long counter = 0;
      int seen = 0;
      for (int run = 0; run < 2; ++run) {
        std::vector<int> numbers(4, -1);
        std::vector<int> sums(4, 0);
        cuda_shim::run_resident_grid(
            {4}, {64},
            [&] {
              kernel::GridBarrier barrier(&counter);
              for (int round = 0; round < 3; ++round) {
                if (threadIdx.x == 40) numbers[blockIdx.x] = round;
                if (waits) barrier.wait();
                if (threadIdx.x == 0) sums[blockIdx.x] += numbers[(blockIdx.x + 1) % 4] == round ? 1 : 0;
                if (waits) barrier.wait();
              }
            },
            order);
        for (const int sum : sums) seen += sum;
      }
      EXPECT_EQ(seen == 2 * 4 * 3, waits);
      EXPECT_EQ(counter, waits ? 2u * 4 * 6 : 0u);
    }
  }
}

TEST(GridBarrierSource, ABlockThatStaysAwayIsNoticed) {
  unsigned long long counter = 0;
  EXPECT_THROW(cuda_shim::run_resident_grid({2}, {32},
                                            [&] {
                                              kernel::GridBarrier barrier(&counter);
                                              if (blockIdx.x == 0) barrier.wait();
                                            }),
               std::logic_error);
}

// A suite a dtype, which ctest runs side by side: this takes a while.
void expect_good_programs(at::ScalarType type) {
  if (const auto missing = nvrtc_missing()) GTEST_SKIP() << *missing;
  for (const int64_t rows : kStepProgramRows) {
    expect_good_kernels(step_program_source(type, rows), 1, step_program_blocks(rows) == 2 ? 128 : 255);
  }
}

TEST(KernelGateOfStepProgramsInFp32, CompileWithoutSpills) {
  expect_good_programs(at::kFloat);
}

TEST(KernelGateOfStepProgramsInBf16, CompileWithoutSpills) {
  expect_good_programs(at::kBFloat16);
}

TEST(KernelGateOfStepProgramsInFp16, CompileWithoutSpills) {
  expect_good_programs(at::kHalf);
}

}  // namespace
}  // namespace draftsmith::model
