#include "model/kinds/language_models.h"

#include "model/kinds/block_decoding.h"
#include "model/kinds/block_prediction.h"
#include "model/kinds/deep_tandem.h"
#include "model/transformer/parameters.h"

namespace draftsmith::model {

std::unique_ptr<LanguageModel> load_language_model(const std::filesystem::path& directory, const LoadOptions& options) {
  const ModelKind& kind = kind_of_directory(directory);
  if (kind == deep_tandem_kind()) return load_deep_tandem(directory, options);
  if (kind != block_prediction_kind()) return load_model(directory, options);
  return std::make_unique<BlockPredictionModel>(load_block_prediction(directory, options));
}

GenerationConfig load_language_settings(const std::filesystem::path& directory) {
  const bool deep = kind_of_directory(directory) == deep_tandem_kind();
  return load_generation_config(deep ? directory / "small" : directory);
}

std::vector<const TransformerModel*> transformers_of(const LanguageModel& model) {
  if (const auto* ordinary = dynamic_cast<const TransformerModel*>(&model)) return {ordinary};
  if (const auto* blocks = dynamic_cast<const BlockPredictionModel*>(&model)) return {&blocks->transformer()};
  if (const auto* deep = dynamic_cast<const DeepTandemModel*>(&model)) return {&deep->small(), &deep->large()};
  return {};
}

int64_t count_numbers(const LanguageModel& model) {
  int64_t numbers = 0;
  for (const TransformerModel* transformer : transformers_of(model)) numbers += count_numbers(transformer->config());
  const auto* deep = dynamic_cast<const DeepTandemModel*>(&model);
  return deep == nullptr ? numbers : numbers + deep->projection().numel();
}

int64_t tokens_at_once(const LanguageModel& model) {
  const auto* blocks = dynamic_cast<const BlockPredictionModel*>(&model);
  return blocks == nullptr ? 1 : blocks->block();
}

}  // namespace draftsmith::model
