// The stand-in accelerator itself: operators give the CPU's numbers, host reads fault, and everything is counted.
#include "tests/standin/standin.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/device_graph.h"
#include "tests/standin/fallback.h"

namespace draftsmith::standin {
namespace {

at::Tensor numbers(at::IntArrayRef size) {
  return at::arange(c10::multiply_integers(size), at::kFloat).sin().view(size);
}

TEST(Standin, OperatorsGiveTheCpusNumbers) {
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

TEST(Standin, InPlaceOperatorsChangeDeviceMemory) {
  at::Tensor x = numbers({3, 4}).to(device());
  at::Tensor row = x[1];
  row.fill_(7).add_(1);
  x.index_put_({at::tensor({2})}, at::full({4}, 5.0F, x.options()));
  const at::Tensor host = x.to(at::kCPU);
  EXPECT_TRUE(host[1].equal(at::full({4}, 8.0F)));
  EXPECT_TRUE(host[2].equal(at::full({4}, 5.0F)));
}

TEST(Standin, CountsLaunchesCopiesAndWaits) {
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

TEST(Standin, HostTensorsAmongDeviceTensorsAreErrors) {
  const at::Tensor a = numbers({4, 4});
  EXPECT_ANY_THROW(a.to(device()).add(a));
  EXPECT_NO_THROW(a.to(device()).add(at::scalar_tensor(2.0F)));
}

TEST(StandinDeathTest, TheHostCannotReadDeviceMemory) {
  const at::Tensor x = numbers({4}).to(device());
  const float* values = x.const_data_ptr<float>();
  EXPECT_DEATH(std::printf("%f", static_cast<double>(values[0])), "");
}

TEST(Standin, GradientsAreTheCpus) {
  const auto gradient = [](const c10::Device& where) {
    at::Tensor weight = numbers({5, 4}).to(where).requires_grad_(true);
    const at::Tensor x = numbers({3, 5}).to(where);
    at::layer_norm(x.mm(weight).relu(), {4}).pow(2).mul(x.sum()).sum().backward();
    return weight.grad().to(at::kCPU);
  };
  EXPECT_TRUE(gradient(device()).allclose(gradient(at::kCPU)));
}

TEST(Standin, MemoryIsUsedAgain) {
  const void* before = nullptr;
  for (int i = 0; i < 3; ++i) {
    const at::Tensor x = at::zeros({1000}, at::TensorOptions().device(device()));
    if (i > 0) {
      EXPECT_EQ(x.const_data_ptr(), before);
    }
    before = x.const_data_ptr();
  }
}

TEST(StandinGraphs, ReplaysReadWhatTheTensorsHoldThen) {
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

TEST(StandinGraphs, WaitsAndCopiesOfTheHostCannotBeRecorded) {
  const at::Tensor x = numbers({4}).to(device());
  const Recording recording;
  EXPECT_THROW(x.sum().item<float>(), std::logic_error);
  EXPECT_THROW(x.to(at::kCPU), std::logic_error);
  EXPECT_THROW(numbers({4}).to(device(), /*non_blocking=*/true), std::logic_error);
}

}  // namespace
}  // namespace draftsmith::standin
