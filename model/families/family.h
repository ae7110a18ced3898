// A family: how config.json becomes a TransformerConfig and back, what the weights are called, and what new models are
// like. All other code is the same for all families. A new family is a .cpp in this folder, the declaration of its
// function below, and its line in family.cpp.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/registry.h"
#include "model/families/common.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

// Shapes that a family's files can hold.
struct FamilyShapes {
  bool heads_make_width = false;  // heads times head_width is the width
  int64_t ff_factor = 0;          // ff_width is so many times the width; 0: any
  bool grouped_keys = false;      // keys and values may have fewer heads than queries
  bool optional_gate = false;     // the feed-forward layers may have a gate or none
};

struct Family {
  std::string name;          // model_type in config.json, and TransformerConfig::family
  std::string architecture;  // architectures[0] in config.json

  // The norms, biases, positions and activation of new models. Sizes, token ids and rotary width are left to the
  // caller.
  TransformerConfig base;
  FamilyShapes shapes = {};

  // Lists the keys of config.json. When they are read, the configuration begins as `base`, and problems with keys go to
  // the reader's list; tied_head becomes what the flags say, but the stored tensors decide (load_model).
  void (*keys)(ConfigKeys& keys, TransformerConfig& config);
  // Returns the names of parameters (model/transformer/parameters.h) in the files.
  const NameTable& (*names)(const TransformerConfig& config);

  std::vector<std::string> embedding_copies = {};  // stored names some writers add: they must equal the embedding
  // Patterns (`*` is any text) of stored names that the model never reads; such tensors are ignored with a log line.
  std::vector<std::string> unused = {};
  // Prefix of stored names, except the head's, that older files leave out ("transformer.").
  std::string optional_prefix = {};
};

// Returns all families.
const Registry<Family>& families();

// Returns the family of a parsed config.json by its architectures, without the prefix that a kind of model puts before
// them (model/files/model_directory.h), or else by its model_type. `where` names the file. Errors: UserError if neither
// key is there, or with the known names if no family has that name.
const Family& family_of(const nlohmann::json& config_json, const std::string& where, const std::string& prefix = {});

// Reads a configuration from config.json.
TransformerConfig read_config(const Family& family, const ConfigReader& reader);
// Returns the complete config.json as Transformers reads it.
nlohmann::ordered_json write_config(const Family& family, TransformerConfig config);

// Returns where a parameter lies in a family's files. Parameters that a Tandem adds keep their canonical names. Throws
// std::logic_error for a name that is not in the family's table.
StoredTensor stored_parameter(const Family& family, const std::string& parameter, const TransformerConfig& config);

// The families, one file each.
Family t5_family();
Family mt5_family();
Family llama_family();
Family gpt2_family();
Family gpt_neox_family();
Family bloom_family();

}  // namespace draftsmith::model
