// The part of a Tandem secondary in config.json:
//   "draftsmith_tandem": {"primary_width", "primary_layers", "layer_map", "block", "primary": {"path", "sha256"}}
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "model/families/config_reader.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

// The primary that a Tandem directory names.
struct PrimaryRecord {
  std::string path;  // relative to the directory; "primary" lies inside it
  std::string hash;  // model_hash()
};

// Adds a problem for each: a layer map of another length than the secondary's layers, or the first number in it outside
// 0..primary_layers; a block γ below 1. `where` names the options or the file.
void check_tandem_shape(const TandemShape& shape, int64_t secondary_layers, const std::string& where,
                        Problems& problems);

// Reads and writes everything but the primary. Functions of ModelKind.
void read_tandem_config(ConfigReader& reader, const std::string& where, TransformerConfig& config, Problems& problems);
void write_tandem_config(const TransformerConfig& config, nlohmann::ordered_json& config_json);

// Returns the primary that a config.json names, if it names one. Errors: UserError at `where`, the file, for a
// malformed record.
std::optional<PrimaryRecord> read_primary_record(const nlohmann::json& config_json, const std::string& where);
// Adds the record to a config.json that has the rest.
void write_primary_record(const PrimaryRecord& primary, nlohmann::ordered_json& config_json);
// Removes the primary's path and keeps its hash: the directory may be moved, or the primary copied into it.
void remove_primary_path(nlohmann::json& config_json);

}  // namespace draftsmith::model
