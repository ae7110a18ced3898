// Corpora and training runs of tiny models on the device of tests/device.
#pragma once

#include <filesystem>

#include "data/corpus/corpus.h"
#include "tests/support/models.h"

namespace draftsmith::on_device {

inline constexpr int64_t kVocabulary = 24;

// Writes a corpus that every family can be trained on: prompts and continuations of one length, or of several.
inline void write_training_corpus(const std::filesystem::path& file, int32_t examples, bool ragged) {
  data::CorpusWriter writer(file,
                            {.tokenizer_hash = "none", .vocabulary = kVocabulary, .provenance = {{"prompts", "true"}}});
  for (int32_t i = 0; i < examples; ++i) {
    std::vector<int32_t> source, target;
    for (int32_t t = 0; t < (ragged ? i % 5 : 4); ++t) source.push_back(2 + (7 * i + 3 * t) % 20);
    for (int32_t t = 0; t < (ragged ? 1 + (3 * i) % 7 : 3); ++t) target.push_back(2 + (5 * i + 11 * t) % 20);
    target.push_back(1);
    writer.add(source, target);
  }
  writer.finish();
}

// Returns a model on a device that is ready to be trained.
inline std::unique_ptr<model::TransformerModel> trainee(model::TransformerConfig config, at::Device device,
                                                        at::ScalarType type) {
  config.vocabulary = kVocabulary;
  auto model = model::varied_model(config, 3);
  model->to(device, type);
  model->requires_grad(true);
  return model;
}

}  // namespace draftsmith::on_device
