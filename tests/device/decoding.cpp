#include "tests/device/decoding.h"

#include <gtest/gtest.h>

#include "infer/drafters/model_drafter.h"
#include "infer/generator.h"
#include "tests/support/models.h"

namespace draftsmith::on_device {

std::vector<Ids> device_sources() {
  std::vector<Ids> sources{{5, 9, 3, 1}, {7}, {2, 4, 6, 8, 10, 12}, {11, 13, 5}, {}};
  for (int64_t i = 0; i < 40; ++i) sources.back().push_back(3 + i % 17);
  return sources;
}

infer::DecodeOptions device_options(const std::string& method, double temperature, int64_t batch) {
  infer::DecodeOptions options;
  options.method = method;
  if (options.method_info().sampling != infer::Sampling::kNever) options.temperature = temperature;
  options.max_new_tokens = 12;
  options.batch_size = batch;
  return options;
}

std::vector<Ids> decode_on(c10::Device device, const model::TransformerConfig& config,
                           const infer::DecodeOptions& options, c10::ScalarType type, bool endless) {
  const auto model_of = [&](uint64_t seed) {
    auto model = model::varied_model(config, seed, type);
    model->requires_grad(false);
    model->to(device, type);
    model->pack();
    return model;
  };
  const auto target = model_of(1);
  const auto drafter = model_of(2);
  infer::GenerationModels models;
  models.target = target.get();
  if (endless) {
    models.generation = model::default_generation_config(config);
    models.generation->eos_ids.clear();
  }
  if (options.drafts()) models.drafter = infer::as_drafter(*drafter, nullptr);
  std::vector<Ids> outputs;
  for (const auto& result : infer::Generator(models, options).generate(device_sources())) {
    EXPECT_FALSE(result.error.has_value());
    outputs.push_back(result.ids);
  }
  return outputs;
}

}  // namespace draftsmith::on_device
