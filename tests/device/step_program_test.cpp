// Step programs on a device: models decode as without them. On the stand-in accelerator programs are run by the
// operators of the CPU, or by the kernel's source on the host.
#include "model/layers/step_program.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include "tests/device/decoding.h"
#include "tests/device/test_device.h"
#include "tests/standin/fallback.h"
#include "tests/standin/standin.h"
#include "tests/support/models.h"
#include "tests/support/step_program_shim.h"
#include "tests/support/tensors.h"

namespace draftsmith::on_device {
namespace {

using model::TransformerConfig;

constexpr c10::DeviceType kStandin = c10::DeviceType::PrivateUse1;
constexpr unsigned kBlocks = 2;

std::vector<at::Tensor> readable(at::TensorList tensors) {
  std::vector<at::Tensor> aliases;
  for (const at::Tensor& tensor : tensors)
    aliases.push_back(tensor.defined() ? standin::readable_alias(tensor) : tensor);
  return aliases;
}

int64_t runs_by_source = 0;

void run_by_source(at::TensorList written, at::TensorList read, at::IntArrayRef kinds, at::IntArrayRef numbers,
                   at::ArrayRef<double> factors, const at::Tensor& counters) {
  const auto outputs = readable(written);
  const auto inputs = readable(read);
  model::run_steps_on_host(model::step_operations(outputs, inputs, kinds, numbers, factors),
                           standin::readable_alias(counters), kBlocks);
  ++runs_by_source;
}

// Has programs of the stand-in accelerator run by the kernel's source while it lives.
struct BySource {
  torch::Library library{torch::Library::IMPL, "draftsmith", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__};

  BySource() { library.impl("run_steps", &run_by_source); }
};

class DeviceStepPrograms : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!on_standin()) GTEST_SKIP() << "elsewhere programs are what GPUs do";
    standin::device();
    model::use_step_programs(kStandin, true);
  }
  void TearDown() override {
    if (!on_standin()) return;
    model::use_step_programs(kStandin, false);
    standin::record_graphs(true);
  }
};

// Models whose rows are multiples of 16 bytes: T5 with and without a gate, Llama with shared heads.
std::vector<TransformerConfig> whole_models(int64_t layers = 2) {
  const model::ModelSizes sizes{.vocabulary = 31,
                                .width = 24,
                                .heads = 4,
                                .kv_heads = 0,
                                .head_width = 8,
                                .ff_width = 40,
                                .encoder_layers = 1,
                                .decoder_layers = layers};
  model::ModelSizes grouped = sizes;
  grouped.kv_heads = 2;
  std::vector<TransformerConfig> configs{model::t5_config(sizes), model::t5_config(sizes),
                                         model::llama_config(grouped)};
  configs[1].gated = true;
  configs[1].activation = model::Activation::kGeluTanh;
  for (TransformerConfig& config : configs) {
    config.relative_buckets = 8;
    config.relative_max_distance = 12;
    config.initializer_range = 0.3;
  }
  return configs;
}

TEST_F(DeviceStepPrograms, GiveTheCpusIds) {
  for (const TransformerConfig& config : whole_models()) {
    for (const char* method : {"greedy", "speculative", "sample"}) {
      for (const int64_t batch : {1, 3}) {
        SCOPED_TRACE(fmt::format("{} gated {} {} batch {}", config.family, config.gated, method, batch));
        const infer::DecodeOptions options = device_options(method, method == std::string("sample") ? 1 : 0, batch);
        const auto expected = decode_on(at::kCPU, config, options, at::kFloat);
        EXPECT_EQ(decode_on(test_device(), config, options, at::kFloat), expected);
        standin::record_graphs(false);
        EXPECT_EQ(decode_on(test_device(), config, options, at::kFloat), expected);
        standin::record_graphs(true);
      }
    }
  }
}

// Returns the logits of some steps of one and several tokens. bf16's rounding may change ids.
std::vector<at::Tensor> logits_of_steps(model::TransformerModel& model, int64_t rows) {
  std::unique_ptr<model::DecodeState> state;
  if (model.config().encoder_decoder) {
    const at::Tensor source = at::arange(3, 3 + rows * 4, at::kLong).remainder(20).view({rows, 4}).to(test_device());
    std::vector<int64_t> lengths(static_cast<size_t>(rows), 4);
    lengths.back() = 2;
    state = model.begin(model.encode({source, lengths}), 20);
  } else {
    state = model.begin(rows, 20);
  }
  std::vector<at::Tensor> logits;
  for (const int64_t tokens : {1, 3, 1}) {
    const at::Tensor ids = at::arange(rows * tokens, at::kLong).view({rows, tokens}).add_(5).to(test_device());
    std::vector<int64_t> fresh(static_cast<size_t>(rows), tokens);
    fresh.front() = 1;
    logits.push_back(
        model.step({.tokens = ids, .new_tokens = fresh, .logits = model::Logits::kLast, .hidden_layers = {}}, *state)
            .logits.cpu());
  }
  return logits;
}

TEST_F(DeviceStepPrograms, GiveTheLogitsOfSingleOperatorsByTheKernelsSource) {
  const BySource by_source;
  standin::record_graphs(false);
  for (const auto& [type, most] : {std::pair{at::kFloat, 1e-4}, {at::kBFloat16, 4e-2}}) {
    for (const TransformerConfig& config : whole_models()) {
      if (type == at::kBFloat16 && config.gated != config.encoder_decoder) continue;  // takes seconds a model
      SCOPED_TRACE(fmt::format("{} {}", at::toString(type), config.family));
      const auto model = model::varied_model(config, 3, type);
      model->requires_grad(false);
      model->to(test_device(), type);
      model->pack();
      runs_by_source = 0;
      const auto found = logits_of_steps(*model, 2);
      EXPECT_EQ(runs_by_source, 3);
      model::use_step_programs(kStandin, false);
      const auto expected = logits_of_steps(*model, 2);
      model::use_step_programs(kStandin, true);
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_LT(difference(found[i], expected[i]), most * largest(expected[i])) << "step " << i;
      }
    }
  }
}

// Returns the launches of a further token.
double launches_a_token(const TransformerConfig& config, at::ScalarType type) {
  const auto launches = [&](int64_t tokens) {
    infer::DecodeOptions options = device_options("greedy", 0, 1);
    options.max_new_tokens = tokens;
    standin::reset_counts();
    decode_on(test_device(), config, options, type, /*endless=*/true);
    return standin::counts().all_launches();
  };
  return static_cast<double>(launches(12) - launches(4)) / (8.0 * static_cast<double>(device_sources().size()));
}

TEST_F(DeviceStepPrograms, AllLayersAreOneLaunch) {
  standin::record_graphs(false);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (size_t i = 0; i < whole_models().size(); ++i) {
      const TransformerConfig more = whole_models(3)[i];
      const double launches = launches_a_token(more, type);
      fmt::print("{:<8} {:<8} {} launches a token, all layers in one\n", more.family, at::toString(type), launches);
      EXPECT_EQ(launches, launches_a_token(whole_models(2)[i], type)) << more.family;
      EXPECT_LE(launches, more.encoder_decoder ? 6 : 5);
    }
  }
}

// Heads and rows of other sizes, other dtypes, norms and models that are not packed take the single operators.
TEST_F(DeviceStepPrograms, OtherModelsDecodeAsBefore) {
  for (const TransformerConfig& config : model::tiny_families()) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      SCOPED_TRACE(fmt::format("{} {}", config.family, at::toString(type)));
      const infer::DecodeOptions options = device_options("assisted", 0, 2);
      EXPECT_EQ(decode_on(test_device(), config, options, type), decode_on(at::kCPU, config, options, type));
    }
  }
  const auto model = model::varied_model(whole_models().front(), 3, at::kFloat);
  model->requires_grad(false);
  model->to(test_device(), at::kFloat);
  const auto unpacked = logits_of_steps(*model, 2);
  model->pack();
  const auto packed = logits_of_steps(*model, 2);
  for (size_t i = 0; i < packed.size(); ++i) EXPECT_LT(difference(packed[i], unpacked[i]), 1e-4);
}

}  // namespace
}  // namespace draftsmith::on_device
