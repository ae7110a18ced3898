// The objects that models of our own kinds (model/kinds/model_kind.h) add to config.json: "draftsmith_tandem" and
// "draftsmith_block_prediction".
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "model/families/config_reader.h"
#include "model/files/model_kind.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

// Fills in what the kind adds, adding every problem to the reader's list; `where` names the file. `config` is otherwise
// complete.
void read_kind(ModelKind kind, ConfigReader& reader, const std::string& where, TransformerConfig& config,
               Problems& problems);
// Adds the object of the configuration's kind; nothing for an ordinary model.
void write_kind(const TransformerConfig& config, const std::optional<PrimaryRecord>& primary,
                nlohmann::ordered_json& config_json);

// The record of a Tandem secondary's config.json; nothing where it names no primary. Errors: UserError for a malformed
// one, with `where` the file.
std::optional<PrimaryRecord> read_primary_record(const nlohmann::json& config_json, const std::string& where);

}  // namespace draftsmith::model
