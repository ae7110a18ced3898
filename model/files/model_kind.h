// What a model directory holds besides ordinary models of a family: kinds of our own, whose architecture in config.json
// is a name of ours before the family's ("DraftsmithTandemT5ForConditionalGeneration", model_type "draftsmith_tandem"),
// so that no other tool takes them for what they are not and fills in random weights.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

enum class ModelKind {
  kOrdinary,
  kTandem,           // secondary of a Tandem: model/kinds/tandem.h
  kBlockPrediction,  // model/kinds/block_prediction.h
  kDeepTandem,       // a pair of models of no one family: model/kinds/deep_tandem.h
};

// The primary that a Tandem directory names.
struct PrimaryRecord {
  std::string path;  // relative to the directory; "primary" lies inside it
  std::string hash;  // model_hash()
};

ModelKind kind_of(const TransformerConfig& config);
// By architectures[0]; ordinary where nothing says otherwise.
ModelKind kind_of(const nlohmann::json& config_json);
// Of a directory; nothing where it has no config.json that can be read.
std::optional<ModelKind> kind_of_directory(const std::filesystem::path& directory);

// What stands before a family's architecture; empty for ordinary models.
std::string architecture_prefix(ModelKind kind);
// model_type in config.json: the family's, or a kind's own.
std::string model_type(ModelKind kind, const std::string& family);
// "a Tandem secondary", for messages.
std::string kind_name(ModelKind kind);

// Errors (UserError): the directory `where` holds another kind than is wanted; the hint says what to do with it.
void require_kind(ModelKind found, ModelKind wanted, const std::string& where);

}  // namespace draftsmith::model
