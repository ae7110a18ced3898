#include "tests/device/decoding.h"

#include <limits>

#include <gtest/gtest.h>

#include "infer/drafters/model_drafter.h"
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

DecodingModels models_on(c10::Device device, const Decoding& decoding) {
  const auto model_of = [&](uint64_t seed, bool drafts) {
    model::TransformerConfig config = decoding.config;
    if (drafts && decoding.drafter_vocabulary > 0) config.vocabulary = decoding.drafter_vocabulary;
    auto model = model::varied_model(config, seed, decoding.type);
    model->requires_grad(false);
    if (decoding.broken_token >= 0 && drafts == decoding.breaks_drafter) {
      at::Tensor embedding = model->parameters().at("embedding.weight");
      embedding[decoding.broken_token].fill_(std::numeric_limits<double>::quiet_NaN());
    }
    model->to(device, decoding.type);
    model->pack();
    return model;
  };
  DecodingModels all{model_of(1, false), model_of(2, true), {}};
  infer::GenerationModels& models = all.models;
  models.target = all.target.get();
  models.target_tokenizer = decoding.tokenizer;
  if (decoding.endless) {
    models.generation = model::default_generation_config(decoding.config);
    models.generation->eos_ids.clear();
  }
  if (decoding.options.drafts()) models.drafter = infer::as_drafter(*all.drafter, decoding.tokenizer);
  return all;
}

std::vector<infer::GenerationResult> results_on(c10::Device device, const Decoding& decoding) {
  const DecodingModels all = models_on(device, decoding);
  return infer::Generator(all.models, decoding.options).generate(decoding.sources);
}

std::vector<Ids> decode_on(c10::Device device, const model::TransformerConfig& config,
                           const infer::DecodeOptions& options, c10::ScalarType type, bool endless) {
  std::vector<Ids> outputs;
  for (const auto& result : results_on(device, {config, options, type, endless})) {
    EXPECT_FALSE(result.error.has_value());
    outputs.push_back(result.ids);
  }
  return outputs;
}

}  // namespace draftsmith::on_device
