#include "tests/support/early_exit_fixtures.h"

#include <algorithm>
#include <map>

#include "infer/drafters/registry.h"
#include "tests/support/models.h"
#include "tests/support/tandem_pairs.h"

namespace draftsmith::infer::testing {

std::unique_ptr<model::TransformerModel> exit_model(const ExitModel& wanted) {
  const auto families = model::tiny_families();
  model::TransformerConfig config = *std::ranges::find(families, wanted.family, &model::TransformerConfig::family);
  config.vocabulary = wanted.vocabulary;
  config.decoder_layers = wanted.layers;
  config.tied_head = false;
  if (config.encoder_decoder) config.output_scale = 0.7;
  auto made = std::make_unique<model::TransformerModel>(config, 1);
  made->requires_grad(false);
  make_lively(*made, 3, 1.5, 0.7);
  made->to(at::kCPU, wanted.type);
  made->pack();
  return made;
}

std::unique_ptr<model::TransformerModel> first_layers(const model::TransformerModel& model, int64_t layers) {
  model::TransformerConfig config = model.config();
  std::map<std::string, at::Tensor> parameters = model.parameters();
  for (int64_t i = layers; i < config.decoder_layers; ++i) {
    const std::string prefix = "decoder." + std::to_string(i) + ".";
    std::erase_if(parameters, [&](const auto& entry) { return entry.first.starts_with(prefix); });
  }
  config.decoder_layers = layers;
  auto made = std::make_unique<model::TransformerModel>(config, std::move(parameters));
  made->pack();
  return made;
}

std::vector<std::vector<int64_t>> exit_sources(const model::TransformerModel& model) {
  return tandem_sources(model.info().encoder_decoder ? Kind::kEncoderDecoder : Kind::kDecoderOnly);
}

DecodeOptions exit_options(const std::string& method, int64_t batch) {
  DecodeOptions options = tandem_options("greedy", 0, batch);
  options.method = method;
  options.max_new_tokens = 14;
  return options;
}

GenerationModels exit_models(model::TransformerModel& model, int64_t layer) {
  GenerationModels models{.target = &model};
  if (layer > 0) models.drafter = exit_drafter(layer);
  return models;
}

std::vector<GenerationResult> run_exit(model::TransformerModel& model, int64_t layer, const DecodeOptions& options) {
  return Generator(exit_models(model, layer), options).generate(exit_sources(model));
}

}  // namespace draftsmith::infer::testing
