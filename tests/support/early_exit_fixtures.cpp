#include "tests/support/early_exit_fixtures.h"

#include <algorithm>
#include <map>
#include <random>

#include "infer/drafters/early_exit_loading.h"
#include "tests/model/models/tandem_passes.h"
#include "tests/support/models.h"

namespace draftsmith::infer::testing {

namespace {

model::TransformerConfig config_of(const ExitModel& wanted) {
  const auto families = model::tiny_families();
  model::TransformerConfig config = *std::ranges::find(families, wanted.family, &model::TransformerConfig::family);
  config.vocabulary = wanted.vocabulary;
  config.decoder_layers = wanted.layers;
  config.tied_head = false;
  if (config.encoder_decoder) config.output_scale = 0.7;
  return config;
}

// Of a layer's additions to the hidden state.
bool writes_hidden(const std::string& name) {
  return name.ends_with(".output.weight") || name.ends_with(".down.weight");
}

}  // namespace

std::unique_ptr<model::TransformerModel> exit_model(const ExitModel& wanted) {
  auto made = std::make_unique<model::TransformerModel>(config_of(wanted), 1);
  made->requires_grad(false);
  std::mt19937_64 random(3);
  for (const auto& [name, value] : made->parameters()) {
    if (value.dim() != 2) continue;
    const bool head = name.starts_with("head");
    const bool table = name.starts_with("embedding") || name.starts_with("positions");
    const bool later = name.starts_with("decoder.") && !name.starts_with("decoder.0.") && writes_hidden(name);
    const double scale = head ? 3 : table ? 0.5 : later ? 0.7 : 2.5;
    at::Tensor weight = value.view(-1);
    for (int64_t i = 0; i < weight.numel(); ++i) {
      weight[i] = scale * (static_cast<double>(random() >> 11) * 0x1p-53 - 0.5);
    }
    if (head) value.select(0, made->config().eos.front()).mul_(1.5);
  }
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
  std::vector<std::vector<int64_t>> sources = {
      {5, 9, 14, 3, 1}, {7}, {2, 1}, {11, 12, 13, 20, 21, 8, 1}, {22}, {6, 6, 17}, {9, 4, 2, 16, 1}};
  sources.push_back(model.info().encoder_decoder ? std::vector<int64_t>{} : std::vector<int64_t>(9, 3));
  return sources;
}

DecodeOptions exit_options(const std::string& method, int64_t batch) {
  DecodeOptions options;
  options.method = method;
  options.temperature = 0;
  options.batch_size = batch;
  options.max_new_tokens = 14;
  return options;
}

GenerationModels exit_models(model::TransformerModel& model, int64_t layer) {
  GenerationModels models;
  models.target = &model;
  if (layer > 0) models.drafter = exit_drafter(layer);
  return models;
}

std::vector<GenerationResult> run_exit(model::TransformerModel& model, int64_t layer, const DecodeOptions& options) {
  return Generator(exit_models(model, layer), options).generate(exit_sources(model));
}

std::vector<std::vector<int64_t>> tokens_of(const std::vector<GenerationResult>& results) {
  std::vector<std::vector<int64_t>> tokens;
  for (const auto& result : results) tokens.push_back(result.ids);
  return tokens;
}

}  // namespace draftsmith::infer::testing
