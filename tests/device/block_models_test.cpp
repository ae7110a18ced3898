// Block prediction and deep Tandems on a device: greedy decoding and sampling give the CPU's ids, for every family.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "infer/generator.h"
#include "model/kinds/block_decoding.h"
#include "model/kinds/block_prediction.h"
#include "model/kinds/deep_tandem.h"
#include "tests/device/test_device.h"
#include "tests/support/models.h"

namespace draftsmith::infer {
namespace {

using draftsmith::on_device::test_device;
using Ids = std::vector<int64_t>;

constexpr int64_t kBlock = 3;

std::unique_ptr<model::LanguageModel> blocks_on(at::Device device, const model::TransformerConfig& config) {
  auto transformer = model::varied_model(model::block_prediction_config(config, kBlock), 4);
  transformer->to(device, at::kDouble);
  return std::make_unique<model::BlockPredictionModel>(std::move(transformer));
}

std::unique_ptr<model::LanguageModel> deep_on(at::Device device, const model::TransformerConfig& config) {
  const at::Tensor projection = normal_tensor({config.width, config.width}, 0.5, 3, "projection", at::kDouble);
  auto deep =
      std::make_unique<model::DeepTandemModel>(model::varied_model(model::block_prediction_config(config, kBlock), 4),
                                               model::varied_model(config, 5), projection);
  deep->to(device, at::kDouble);
  return deep;
}

std::vector<Ids> ids_of(model::LanguageModel& model, double temperature, int64_t batch) {
  DecodeOptions options;
  options.method = temperature == 0 ? "greedy" : "sample";
  options.temperature = temperature;
  options.batch_size = batch;
  options.max_new_tokens = 14;
  GenerationModels models;
  models.target = &model;
  const std::vector<Ids> prompts = {{2, 3, 4, 5}, {9, 8, 7, 6, 5, 4, 3}, {11, 2, 13}, Ids(40, 7)};
  std::vector<Ids> ids;
  for (const GenerationResult& result : Generator(models, options).generate(prompts)) ids.push_back(result.ids);
  return ids;
}

TEST(DeviceDecoding, ModelsInBlocksGiveTheCpusIds) {
  for (model::TransformerConfig config : {model::tiny_llama(2), model::tiny_gpt2(2), model::tiny_bloom(2)}) {
    config.initializer_range = 0.7;
    for (const auto& make : {blocks_on, deep_on}) {
      const auto here = make(at::kCPU, config);
      const auto there = make(test_device(), config);
      for (const double temperature : {0.0, 1.0}) {
        for (const int64_t batch : {1, 3}) {
          SCOPED_TRACE(fmt::format("{} T {} batch {}", config.family, temperature, batch));
          EXPECT_EQ(ids_of(*there, temperature, batch), ids_of(*here, temperature, batch));
        }
      }
    }
  }
}

}  // namespace
}  // namespace draftsmith::infer
