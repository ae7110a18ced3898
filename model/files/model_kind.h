// Kinds of models that a directory may hold. A model of a kind of our own has the kind's name before its family's
// architecture in config.json ("DraftsmithTandemT5ForConditionalGeneration", model_type "draftsmith_tandem"), so that
// other tools do not take it for an ordinary model and fill in random weights. The kinds are in model/kinds/.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "model/families/config_reader.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

struct ModelKind {
  std::string name;             // for messages: "a Tandem secondary"
  std::string prefix = {};      // before the family's architecture; empty: an ordinary model
  std::string model_type = {};  // in config.json; empty: the family's
  std::string hint;             // what to do with such a directory where another kind is wanted

  // Returns whether a configuration is of this kind; nullptr: not to be seen from one.
  bool (*describes)(const TransformerConfig& config) = nullptr;
  // Reads the kind's part of config.json, adding every problem to the reader's list. `config` is otherwise complete;
  // `where` names the file.
  void (*read)(ConfigReader& reader, const std::string& where, TransformerConfig& config, Problems& problems) = nullptr;
  // Adds the kind's part to config.json.
  void (*write)(const TransformerConfig& config, nlohmann::ordered_json& config_json) = nullptr;
  // Removes from config.json the paths of other models, which are no part of this one: model_hash() ignores them.
  void (*remove_paths)(nlohmann::json& config_json) = nullptr;
  // Checks everything about a directory of this kind, its weights included. Errors: UserError.
  void (*check_directory)(const std::filesystem::path& directory) = nullptr;

  friend bool operator==(const ModelKind& a, const ModelKind& b) { return a.name == b.name; }
};

// Returns the kind of models that have only what their family has.
const ModelKind& ordinary_kind();

// Returns all kinds, the ordinary one first. The list is in model/kinds/registry.cpp.
const std::vector<ModelKind>& model_kinds();

// Returns the kind of a configuration.
const ModelKind& kind_of(const TransformerConfig& config);
// Returns the kind that architectures[0] names; the ordinary one if it names no other.
const ModelKind& kind_of(const nlohmann::json& config_json);
// Returns the kind of a directory; the ordinary one if its config.json cannot be read.
const ModelKind& kind_of_directory(const std::filesystem::path& directory);

// Refuses a model of another kind than `wanted`. Errors: UserError at `where` with the hint of the kind that was found.
void require_kind(const ModelKind& found, const ModelKind& wanted, const std::string& where);

// Returns the object that a kind adds to config.json under `key`, or nullptr with a problem.
const nlohmann::json* kind_object(ConfigReader& reader, const std::string& key);

}  // namespace draftsmith::model
