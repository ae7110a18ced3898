// The checks of a GPU's first run (bench/support/device_checks.h), on the stand-in accelerator: they pass where the
// sources of the kernels for linear layers run on the host, and fail where one constant of them is wrong or where the
// kernels cannot be loaded.
#include "bench/support/device_checks.h"

#include <map>

#include <gtest/gtest.h>

#include "base/device_kernels.h"
#include "base/error.h"
#include "base/files.h"
#include "base/kernel_loader.h"
#include "model/layers/linear_rows.h"
#include "model/layers/linear_rows_gpu.h"
#include "tests/standin/fallback.h"
#include "tests/standin/standin.h"
#include "tests/support/cuda_shim.h"
#include "tests/support/kernel_gate.h"
#include "tests/support/scoped_variable.h"
// The shim comes first.
#include "model/layers/kernels/linear_rows.cu"
#undef LINEAR_ROWS_KERNEL
#define LINEAR_ROWS_SUFFIX wrong
#define LINEAR_ROWS_TYPE Float
#include <wrong_linear_rows.cu>  // with another constant: tests/CMakeLists.txt

namespace draftsmith::bench {
namespace {

using Stack = torch::jit::Stack;
using Kernel = void (*)(const float*, const float*, float, const float*, const float*, const float*, const float*,
                        const float*, float*, int, int, int, int);

// Kernels without and with a norm, by their names.
using Kernels = std::map<std::string, Kernel>;
#define KERNELS_OF(kind, suffix)                                                        \
  {#kind "_fp32_1", kind##_##suffix##_1}, {#kind "_fp32_2", kind##_##suffix##_2},       \
      {#kind "_fp32_4", kind##_##suffix##_4}, {#kind "_fp32_8", kind##_##suffix##_8}, { \
#kind "_fp32_16", kind##_##suffix##_16                                              \
  }
const Kernels kRight{KERNELS_OF(linear_rows, fp32), KERNELS_OF(normed_rows, fp32)};
const Kernels kWrong{KERNELS_OF(linear_rows, wrong), KERNELS_OF(normed_rows, wrong)};

const float* numbers(const c10::IValue& tensor) {
  return tensor.isNone() ? nullptr : tensor.toTensor().const_data_ptr<float>();
}

// Does what linear_rows_by_kernel() does on a GPU. `up` and `residual` may be none.
at::Tensor run_kernel(const Kernels& kernels, const at::Tensor& x, const c10::IValue& norm, double epsilon,
                      const at::Tensor& weight, const c10::IValue& bias, const c10::IValue& up,
                      const c10::IValue& up_bias, int64_t then, const c10::IValue& residual) {
  const int64_t rows = x.numel() / x.size(-1);
  const int64_t outputs = weight.size(0);
  const model::LinearRowsKernel chosen =
      model::linear_rows_kernel(at::kFloat, rows, outputs, !norm.isNone(), !up.isNone());
  const Kernel kernel = kernels.at(chosen.name);
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = outputs;
  const at::Tensor y = at::empty(shape, x.options());
  cuda_shim::run_grid({static_cast<unsigned>(chosen.blocks)}, {static_cast<unsigned>(chosen.threads)}, [&] {
    kernel(x.const_data_ptr<float>(), numbers(norm), static_cast<float>(epsilon), weight.const_data_ptr<float>(),
           numbers(bias), numbers(up), numbers(up_bias), numbers(residual), y.mutable_data_ptr<float>(),
           static_cast<int>(rows), static_cast<int>(x.size(-1)), static_cast<int>(outputs), static_cast<int>(then));
  });
  return y;
}

// Makes the stand-in run these kernels for linear layers of few rows.
void run_kernels(const Kernels& kernels) {
  standin::replace_operator("linear_rows", [&kernels](const c10::OperatorHandle&, Stack* stack) {
    const Stack in(stack->end() - 7, stack->end());
    torch::jit::drop(*stack, 7);
    stack->emplace_back(run_kernel(kernels, in[0].toTensor().contiguous(), in[1], in[2].toDouble(), in[3].toTensor(),
                                   in[4], {}, {}, in[5].toInt(), in[6]));
  });
  standin::replace_operator("gated_rows", [&kernels](const c10::OperatorHandle&, Stack* stack) {
    const Stack in(stack->end() - 8, stack->end());
    torch::jit::drop(*stack, 8);
    stack->emplace_back(run_kernel(kernels, in[0].toTensor().contiguous(), in[1], in[2].toDouble(), in[3].toTensor(),
                                   in[4], in[5], in[6], in[7].toInt(), {}));
  });
}

class DeviceChecks : public testing::Test {
 protected:
  void TearDown() override {
    for (const char* name : {"linear_rows", "gated_rows"}) standin::replace_operator(name, {});
    want_recordings(true);
  }

  // Returns the results of the smoke checks of a shape by name.
  static std::map<std::string, CheckResult> smoke(const std::string& shape) {
    std::map<std::string, CheckResult> results;
    CheckSettings settings{.shape = shape, .device = standin::device(), .require_kernels = true};
    settings.lines = 2;
    settings.new_tokens = 4;
    check_ways(settings, [&](const CheckResult& result) { results[result.name] = result; });
    return results;
  }

  ScopedVariable strict_{"DRAFTSMITH_STRICT_DEVICE", "1"};
};

TEST_F(DeviceChecks, PassWithRightKernels) {
  run_kernels(kRight);
  for (const char* shape : {"tiny-t5-drafter", "tiny-llama"}) {
    for (const auto& [name, result] : smoke(shape)) {
      EXPECT_TRUE(result.passed) << shape << ' ' << name << ' ' << result.value << ' ' << result.problem;
    }
  }
}

TEST_F(DeviceChecks, FindAKernelWithOneWrongConstant) {
  run_kernels(kWrong);
  for (const char* shape : {"tiny-t5-drafter", "tiny-llama"}) {
    const auto results = smoke(shape);
    EXPECT_TRUE(results.at("kernels_found").passed) << shape;
    EXPECT_FALSE(results.at("logits_default_no_kernels").passed) << shape;
    EXPECT_GT(results.at("logits_default_no_kernels").value, 0.05) << shape;
  }
}

// Kernels that compile, and a runtime that refuses to load them, as an older driver does.
TEST_F(DeviceChecks, FindALibraryThatIsRefused) {
  if (const auto missing = nvrtc_missing()) GTEST_SKIP() << *missing;
  const TemporaryDirectory folder;
  const CudaRuntime refusing{
      .get_attribute = [](int* value, int attribute, int) { return *value = attribute == 75 ? 9 : 0, 0; },
      .load_library = [](void**, const void*, void*, void*, unsigned, void*, void**, unsigned) { return 209; },
      .last_error = [] { return 0; },
      .error_text = [](int) { return "no kernel image is available"; }};
  KernelLoader loader(model::linear_rows_source(at::kFloat),
                      std::make_shared<KernelTools>(refusing, "", folder.path()));
  standin::replace_operator("linear_rows", [&](const c10::OperatorHandle&, Stack*) {
    try {
      loader.kernel(0, "linear_rows_fp32_1");
    } catch (const RunError& error) {
      report_fallback("LibTorch's operators run in place of own GPU kernels", error.what());
    }
  });
  for (const auto& [name, result] : smoke("tiny-t5-drafter")) {
    EXPECT_FALSE(result.passed) << name;
    EXPECT_NE(result.problem.find("DRAFTSMITH_STRICT_DEVICE"), std::string::npos) << name << ": " << result.problem;
  }
}

TEST_F(DeviceChecks, FindKernelsThatDoNotRun) {
  const auto results = smoke("tiny-t5-drafter");
  EXPECT_FALSE(results.at("kernels_found").passed);
  EXPECT_TRUE(results.at("graph_recorded").passed);
}

}  // namespace
}  // namespace draftsmith::bench
