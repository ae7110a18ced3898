#include "tests/device/device.h"

#include <cstdlib>
#include <limits>

#include <gtest/gtest.h>

#include "base/device.h"
#include "base/device_graph.h"
#include "base/device_kernels.h"
#include "data/corpus/corpus.h"
#include "infer/drafters/model_drafter.h"
#include "tests/support/models.h"

namespace draftsmith::on_device {
namespace {

constexpr int64_t kTrainedVocabulary = 24;

std::string device_name() {
  const char* name = std::getenv("DRAFTSMITH_TEST_DEVICE");
  return name == nullptr || *name == '\0' ? "standin" : name;
}

}  // namespace

bool on_standin() {
  return device_name() == "standin";
}

c10::Device test_device() {
  return on_standin() ? standin::device() : choose_device(device_name(), "DRAFTSMITH_TEST_DEVICE");
}

void record_graphs(bool on) {
  const c10::Device device = test_device();
  want_recordings(on);  // also after a recording that failed
  if (on_standin()) return standin::record_graphs(on);
  if (device.is_cuda()) set_graph_recorder(device.type(), on ? cuda_graph_recorder() : GraphRecorder());
}

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
    if (drafts && decoding.drafter_positions > 0) config.max_positions = decoding.drafter_positions;
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

std::vector<Ids> decode_on(c10::Device device, const Decoding& decoding) {
  std::vector<Ids> outputs;
  for (const auto& result : results_on(device, decoding)) {
    EXPECT_FALSE(result.error.has_value());
    outputs.push_back(result.ids);
  }
  return outputs;
}

void write_training_corpus(const std::filesystem::path& file, int32_t examples, bool ragged) {
  data::CorpusWriter writer(
      file, {.tokenizer_hash = "none", .vocabulary = kTrainedVocabulary, .provenance = {{"prompts", "true"}}});
  for (int32_t i = 0; i < examples; ++i) {
    std::vector<int32_t> source, target;
    for (int32_t t = 0; t < (ragged ? i % 5 : 4); ++t) source.push_back(2 + (7 * i + 3 * t) % 20);
    for (int32_t t = 0; t < (ragged ? 1 + (3 * i) % 7 : 3); ++t) target.push_back(2 + (5 * i + 11 * t) % 20);
    target.push_back(1);
    writer.add(source, target);
  }
  writer.finish();
}

std::unique_ptr<model::TransformerModel> trainee(model::TransformerConfig config, at::Device device,
                                                 at::ScalarType type) {
  config.vocabulary = kTrainedVocabulary;
  auto model = model::varied_model(config, 3);
  model->to(device, type);
  model->requires_grad(true);
  return model;
}

}  // namespace draftsmith::on_device
