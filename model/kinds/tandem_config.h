// The part of a Tandem secondary in config.json:
//   "draftsmith_tandem": {"primary_width", "primary_layers", "layer_map", "block", "primary": {"path", "sha256"}}
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "model/families/config_reader.h"
#include "model/kinds/companion.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

// Returns how Tandem secondaries name their primary.
const CompanionRole& tandem_role();

// Adds a problem for each: a layer map of another length than the secondary's layers, or the first number in it outside
// 0..primary_layers; a block γ below 1. `where` names the options or the file.
void check_tandem_shape(const TandemShape& shape, int64_t secondary_layers, const std::string& where,
                        Problems& problems);

// Reads and writes everything but the primary. Functions of ModelKind.
void read_tandem_config(ConfigReader& reader, const std::string& where, TransformerConfig& config, Problems& problems);
void write_tandem_config(const TransformerConfig& config, nlohmann::ordered_json& config_json);

}  // namespace draftsmith::model
