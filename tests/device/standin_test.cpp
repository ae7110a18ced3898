// The stand-in accelerator itself: operators give the CPU's numbers, host reads fault, and everything is counted.
#include "tests/standin/standin.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include "base/device_graph.h"
#include "base/device_kernels.h"
#include "tests/device/test_device.h"
#include "tests/standin/fallback.h"

namespace draftsmith::standin {
namespace {

at::Tensor numbers(at::IntArrayRef size) {
  return at::arange(c10::multiply_integers(size), at::kFloat).sin().view(size);
}

// Not where a GPU is tested, whose place the stand-in would take.
class Standin : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!on_device::on_standin()) GTEST_SKIP() << "another device is tested";
  }
};
using StandinDeathTest = Standin;
using StandinGraphs = Standin;

at::Tensor filled(int64_t size, double value) {
  return at::full({size}, value, at::TensorOptions().device(device()));
}

// Returns whether all numbers are this one.
bool all_are(const at::Tensor& tensor, double value) {
  return tensor.to(at::kCPU).eq(value).all().item<bool>();
}

bool all_are_nan(const at::Tensor& tensor) {
  return tensor.to(at::kCPU).isnan().all().item<bool>();
}

// Records work that succeeds.
std::unique_ptr<RecordedWork> recording_of(WorkMemory& memory, const std::function<void()>& work) {
  auto recorded = record_graph(device(), memory, work);
  if (!recorded) throw std::runtime_error("nothing was recorded");
  return recorded;
}

TEST_F(Standin, OperatorsGiveTheCpusNumbers) {
  const at::Tensor a = numbers({4, 6});
  const at::Tensor b = numbers({6, 5});
  const at::Tensor x = a.to(device());
  const at::Tensor y = b.to(device());
  EXPECT_EQ(x.device(), device());
  EXPECT_TRUE(x.mm(y).softmax(-1).to(at::kCPU).equal(a.mm(b).softmax(-1)));
  EXPECT_TRUE(x.t().slice(0, 1, 4).sum(1).to(at::kCPU).equal(a.t().slice(0, 1, 4).sum(1)));
  EXPECT_TRUE(at::cat({x, 2 * x}, 1).argmax(-1).to(at::kCPU).equal(at::cat({a, 2 * a}, 1).argmax(-1)));
  EXPECT_TRUE(x.masked_select(x.gt(0)).to(at::kCPU).equal(a.masked_select(a.gt(0))));
  EXPECT_TRUE(std::get<1>(x.topk(3)).to(at::kCPU).equal(std::get<1>(a.topk(3))));
  EXPECT_TRUE(at::where(x.gt(0), x, -x).cumsum(1).to(at::kCPU).equal(at::where(a.gt(0), a, -a).cumsum(1)));
  EXPECT_FLOAT_EQ(x[1][2].item<float>(), a[1][2].item<float>());
}

TEST_F(Standin, InPlaceOperatorsChangeDeviceMemory) {
  at::Tensor x = numbers({3, 4}).to(device());
  at::Tensor row = x[1];
  row.fill_(7).add_(1);
  x.index_put_({at::tensor({2})}, at::full({4}, 5.0F, x.options()));
  const at::Tensor host = x.to(at::kCPU);
  EXPECT_TRUE(host[1].equal(at::full({4}, 8.0F)));
  EXPECT_TRUE(host[2].equal(at::full({4}, 5.0F)));
}

TEST_F(Standin, CountsLaunchesCopiesAndWaits) {
  const at::Tensor a = numbers({4, 4});
  reset_counts();
  const at::Tensor x = a.to(device());
  EXPECT_EQ(counts().copies_to_device, 1);
  EXPECT_EQ(counts().waits, 1);
  const at::Tensor y = a.to(device(), /*non_blocking=*/true);
  EXPECT_EQ(counts().copies_to_device, 2);
  EXPECT_EQ(counts().waits, 1);
  reset_counts();
  const at::Tensor z = x.mm(y).relu();
  EXPECT_EQ(counts().launches.at("mm"), 1);
  EXPECT_EQ(counts().all_launches(), 2);
  EXPECT_EQ(counts().waits, 0);
  z.sum().item<float>();
  z.nonzero();
  EXPECT_EQ(counts().waits, 2);
}

TEST_F(Standin, HostTensorsAmongDeviceTensorsAreErrors) {
  const at::Tensor a = numbers({4, 4});
  EXPECT_ANY_THROW(a.to(device()).add(a));
  EXPECT_NO_THROW(a.to(device()).add(at::scalar_tensor(2.0F)));
}

TEST_F(StandinDeathTest, TheHostCannotReadDeviceMemory) {
  const at::Tensor x = numbers({4}).to(device());
  const float* values = x.const_data_ptr<float>();
  EXPECT_DEATH(std::printf("%f", static_cast<double>(values[0])), "");
}

TEST_F(Standin, GradientsAreTheCpus) {
  const auto gradient = [](const c10::Device& where) {
    at::Tensor weight = numbers({5, 4}).to(where).requires_grad_(true);
    const at::Tensor x = numbers({3, 5}).to(where);
    at::layer_norm(x.mm(weight).relu(), {4}).pow(2).mul(x.sum()).sum().backward();
    return weight.grad().to(at::kCPU);
  };
  EXPECT_TRUE(gradient(device()).allclose(gradient(at::kCPU)));
}

TEST_F(Standin, MemoryIsUsedAgain) {
  const void* before = nullptr;
  for (int i = 0; i < 3; ++i) {
    const at::Tensor x = at::zeros({1000}, at::TensorOptions().device(device()));
    if (i > 0) {
      EXPECT_EQ(x.const_data_ptr(), before);
    }
    before = x.const_data_ptr();
  }
}

TEST_F(StandinGraphs, ReplaysReadWhatTheTensorsHoldThen) {
  const at::Tensor x = numbers({3, 4}).to(device());
  at::Tensor y;
  const at::Tensor runs = at::zeros({1}, x.options());
  WorkMemory memory;
  const auto work = record_graph(device(), memory, [&] {
    y = x.mm(x.t()).softmax(-1);
    y.add_(1);
    runs.add_(1);
  });
  ASSERT_NE(work, nullptr);
  EXPECT_EQ(runs.item<float>(), 0) << "recording does nothing";
  for (const double factor : {1.0, 3.0}) {
    const at::Tensor host = factor * numbers({3, 4});
    x.copy_(host);
    reset_counts();
    work->replay();
    EXPECT_EQ(counts().all_launches(), 1);
    EXPECT_TRUE(y.to(at::kCPU).allclose(host.mm(host.t()).softmax(-1) + 1));
  }
  EXPECT_EQ(runs.item<float>(), 2);
}

TEST_F(Standin, ReleasedMemoryIsOverwritten) {
  const void* before = filled(1000, 5).const_data_ptr();
  const at::Tensor floats = at::empty({1000}, at::TensorOptions().device(device()));
  ASSERT_EQ(floats.const_data_ptr(), before);
  EXPECT_TRUE(all_are_nan(floats));
  const at::Tensor whole = at::empty({1000}, floats.options().dtype(at::kLong));
  EXPECT_TRUE(all_are(whole, -1));
}

// As a CUDA graph, which holds addresses.
TEST_F(StandinGraphs, AReplayReadsTheMemoryOfATensorThatIsGone) {
  at::Tensor read = filled(1000, 1);
  at::Tensor sum;
  WorkMemory memory;
  const auto work = recording_of(memory, [&] { sum = read + 1; });
  work->replay();
  EXPECT_TRUE(all_are(sum, 2));
  const void* address = read.const_data_ptr();
  read.reset();
  work->replay();
  EXPECT_TRUE(all_are_nan(sum));
  const at::Tensor other = filled(1000, 5);
  ASSERT_EQ(other.const_data_ptr(), address);
  work->replay();
  EXPECT_TRUE(all_are(sum, 6));
}

TEST_F(StandinGraphs, AReplayWritesTheMemoryOfATensorThatIsGone) {
  at::Tensor written = filled(1000, 0);
  WorkMemory memory;
  const auto work = recording_of(memory, [&] { written.add_(1); });
  written.reset();
  const at::Tensor other = filled(1000, 5);
  work->replay();
  EXPECT_TRUE(all_are(other, 6));
}

TEST_F(StandinGraphs, ResultsHaveNoValuesBeforeAReplay) {
  const at::Tensor x = filled(10, 1);
  at::Tensor sum, largest;
  WorkMemory memory;
  const auto work = recording_of(memory, [&] {
    sum = x + 1;
    largest = at::empty({0}, x.options());
    at::maximum_out(largest, x, sum);
  });
  EXPECT_TRUE(all_are_nan(sum));
  EXPECT_TRUE(all_are_nan(largest));
  work->replay();
  EXPECT_TRUE(all_are(sum, 2));
  EXPECT_TRUE(all_are(largest, 2));
}

// Recordings that share memory use what the other computed on the way, and leave what tensors have.
TEST_F(StandinGraphs, RecordingsShareTheMemoryOfWhatIsNoTensor) {
  const at::Tensor x = filled(1000, 1);
  WorkMemory memory, another;
  const auto between = [&](WorkMemory& in, at::Tensor& result, std::unique_ptr<RecordedWork>& work) {
    const void* address = nullptr;
    work = recording_of(in, [&] {
      const at::Tensor doubled = 2 * x;
      address = doubled.const_data_ptr();
      result = (doubled + 1) * 3;
    });
    return address;
  };
  at::Tensor first, second, third;
  std::unique_ptr<RecordedWork> one, two, three;
  const void* address = between(memory, first, one);
  one->replay();
  EXPECT_EQ(between(memory, second, two), address);
  EXPECT_NE(between(another, third, three), address);
  EXPECT_TRUE(all_are(first, 9)) << "recording changes no tensor";
  x.fill_(2);
  two->replay();
  EXPECT_TRUE(all_are(first, 9));
  EXPECT_TRUE(all_are(second, 15));
  one->replay();
  EXPECT_TRUE(all_are(first, 15));
}

TEST_F(StandinGraphs, ARecordingChangesNoResultOfAnother) {
  at::Tensor sum;
  const at::Tensor x = filled(10, 1);
  WorkMemory memory;
  const auto one = recording_of(memory, [&] { sum = x + 1; });
  one->replay();
  const auto two = recording_of(memory, [&] { sum.mul_(4); });
  EXPECT_TRUE(all_are(sum, 2));
  two->replay();
  EXPECT_TRUE(all_are(sum, 8));
}

TEST_F(StandinGraphs, MemoryOfRecordingsIsNotGivenToOthers) {
  constexpr int64_t kSize = 5'000'000;  // larger than anything else here
  const at::Tensor x = filled(kSize, 1);
  const auto given = [](const void* address) {
    std::vector<at::Tensor> tensors;
    for (int i = 0; i < 3; ++i) tensors.push_back(at::empty({kSize}, at::TensorOptions().device(device())));
    return std::ranges::any_of(tensors, [&](const auto& tensor) { return tensor.const_data_ptr() == address; });
  };
  at::Tensor result;
  const void* on_the_way = nullptr;
  WorkMemory memory;
  auto work = recording_of(memory, [&] {
    const at::Tensor doubled = 2 * x;
    on_the_way = doubled.const_data_ptr();
    result = doubled.sum();
  });
  EXPECT_FALSE(given(on_the_way));
  memory.reset();
  EXPECT_FALSE(given(on_the_way)) << "the recording has it";
  work->replay();
  work.reset();
  EXPECT_TRUE(given(on_the_way));
  EXPECT_TRUE(all_are_nan(at::empty({kSize}, x.options())));
  EXPECT_TRUE(all_are(result, 2.0 * kSize)) << "tensors keep their memory";
}

// Adds 1; the replacement adds 10.
TORCH_LIBRARY_FRAGMENT(draftsmith, library) {
  library.def("standin_test(Tensor x, Tensor(a!) sum) -> (Tensor, Tensor(a!))");
}

std::tuple<at::Tensor, at::Tensor> add_one(const at::Tensor& x, at::Tensor sum) {
  return {x + 1, sum.add_(1)};
}

TORCH_LIBRARY_IMPL(draftsmith, CPU, library) {
  library.impl("standin_test", &add_one);
}

void add_ten(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  const at::Tensor sum = torch::jit::pop(*stack).toTensor();
  const at::Tensor x = torch::jit::pop(*stack).toTensor();
  EXPECT_TRUE(x.is_cpu() && sum.is_cpu());
  torch::jit::push(*stack, x + 10, sum.add_(10));
}

at::Tensor call_test_operator(const at::Tensor& x, const at::Tensor& sum) {
  torch::jit::Stack stack{x, sum};
  c10::Dispatcher::singleton().findSchemaOrThrow("draftsmith::standin_test", "").callBoxed(&stack);
  EXPECT_TRUE(stack[1].toTensor().is_same(sum));
  return stack[0].toTensor();
}

TEST_F(Standin, OurOperatorsCanBeReplaced) {
  const at::Tensor x = filled(10, 1);
  const at::Tensor sum = filled(10, 0);
  EXPECT_TRUE(all_are(call_test_operator(x, sum), 2));
  const int64_t before = device_execution().kernel_launches;
  replace_operator("standin_test", &add_ten);
  EXPECT_TRUE(all_are(call_test_operator(x, sum), 11));
  EXPECT_TRUE(all_are(sum, 11));
  at::Tensor recorded;
  WorkMemory memory;
  const auto work = recording_of(memory, [&] { recorded = call_test_operator(x, sum); });
  EXPECT_TRUE(all_are(sum, 11));
  replace_operator("standin_test", {});
  EXPECT_TRUE(all_are(call_test_operator(x, sum), 2));
  EXPECT_TRUE(all_are(sum, 12));
  work->replay();
  EXPECT_TRUE(all_are(recorded, 11));
  EXPECT_TRUE(all_are(sum, 22));
  EXPECT_EQ(device_execution().kernel_launches - before, 2) << "one of them recorded";
  EXPECT_THROW(replace_operator("no_such_operator", &add_ten), c10::Error);
}

TEST_F(StandinGraphs, WaitsAndCopiesOfTheHostCannotBeRecorded) {
  const at::Tensor x = numbers({4}).to(device());
  MemoryPool pool;
  const Recording recording(pool);
  EXPECT_THROW(x.sum().item<float>(), std::logic_error);
  EXPECT_THROW(x.to(at::kCPU), std::logic_error);
  EXPECT_THROW(numbers({4}).to(device(), /*non_blocking=*/true), std::logic_error);
}

}  // namespace
}  // namespace draftsmith::standin
