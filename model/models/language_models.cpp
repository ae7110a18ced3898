#include "model/models/language_models.h"

#include <string>
#include <system_error>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "model/models/block_models.h"
#include "model/models/deep_tandem.h"
#include "model/models/feature_drafter.h"
#include "model/models/shared_encoder.h"
#include "model/models/tandem.h"
#include "model/transformer/parameters.h"

namespace draftsmith::model {

LoadedLanguageModel load_language_model(const std::filesystem::path& directory, const LoadOptions& options) {
  const ModelKind& kind = kind_of_directory(directory);
  if (kind == deep_tandem_kind()) {
    return {load_deep_tandem(directory, options), read_settings(directory / "small").generation};
  }
  const bool blocks = kind == block_prediction_kind();
  const ModelDirectory opened(directory, blocks ? kind : ordinary_kind());
  auto transformer = load_model(opened, options);
  if (!blocks) return {std::move(transformer), opened.generation()};
  return {std::make_unique<BlockPredictionModel>(std::move(transformer)), opened.generation()};
}

void check_model_directory(const std::filesystem::path& directory) {
  if (kind_of_directory(directory) == deep_tandem_kind()) {
    open_deep_tandem(directory);
  } else {
    check_transformer_directory(directory);
  }
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

namespace {

void ordinary_keys(ConfigKeys& keys, TransformerConfig& config) {
  if (!keys.reads() || !config.encoder_decoder || config.encoder_layers >= 1) return;
  keys.reader().wrong(keys.has("encoder_layers") ? "encoder_layers" : "num_layers",
                      "leaves the model without an encoder, as only drafters that read another model's are",
                      "1 or more");
}

}  // namespace

const ModelKind& ordinary_kind() {
  static const ModelKind kOrdinary = {
      .name = "an ordinary model", .hint = "give a directory that was trained as one", .keys = ordinary_keys};
  return kOrdinary;
}

const std::vector<ModelKind>& model_kinds() {
  static const std::vector<ModelKind> kKinds = {ordinary_kind(),    tandem_kind(),         block_prediction_kind(),
                                                deep_tandem_kind(), shared_encoder_kind(), features_kind()};
  return kKinds;
}

const ModelKind& kind_of(const TransformerConfig& config) {
  for (const ModelKind& kind : model_kinds()) {
    if (kind.describes != nullptr && kind.describes(config)) return kind;
  }
  return ordinary_kind();
}

const ModelKind& kind_of(const nlohmann::json& config_json) {
  const auto architectures = config_json.find("architectures");
  if (architectures == config_json.end() || !architectures->is_array() || architectures->empty() ||
      !architectures->front().is_string()) {
    return ordinary_kind();
  }
  const auto architecture = architectures->front().get<std::string>();
  for (const ModelKind& kind : model_kinds()) {
    if (!kind.prefix.empty() && architecture.starts_with(kind.prefix)) return kind;
  }
  return ordinary_kind();
}

const ModelKind& kind_of_directory(const std::filesystem::path& directory) {
  std::error_code status;
  if (!std::filesystem::is_regular_file(directory / "config.json", status)) return ordinary_kind();
  try {
    return kind_of(load_json(directory / "config.json", 16'000'000));
  } catch (const UserError&) {
    return ordinary_kind();
  }
}

void require_kind(const ModelKind& found, const ModelKind& wanted, const std::string& where) {
  if (found == wanted) return;
  throw UserError({.where = where,
                   .what = "is a model of another kind",
                   .expected = wanted.name,
                   .found = found.name,
                   .hint = found.hint});
}

}  // namespace draftsmith::model
