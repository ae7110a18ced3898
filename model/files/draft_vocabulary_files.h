// The files of a pruned vocabulary (model/transformer/draft_vocabulary.h). config.json keeps the target's `vocab_size`
// and token ids and adds `draft_vocab_size` (rows) and `draft_unknown_token_id` (the stand-in).
// draftsmith/vocabulary.safetensors holds, as EAGLE-3 drafters in the `speculators` library and vLLM do,
//   d2t  I64  [draft_vocab_size]  target id minus row: row i is the target's id i + d2t[i]; ids rise with rows
//   t2d  BOOL [vocab_size]        whether a target id has a row
#pragma once

#include <filesystem>

#include <nlohmann/json_fwd.hpp>

#include "model/families/family.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

// Reads the keys and the maps of a model directory, adding every problem. Returns an empty vocabulary if it has
// neither. `config` gives the size of the vocabulary.
DraftVocabulary read_draft_vocabulary(const std::filesystem::path& directory, ConfigReader& reader,
                                      const TransformerConfig& config, Problems& problems);

// Writes the maps and adds the keys to config.json's contents; nothing for a complete vocabulary. Errors: RunError.
void write_draft_vocabulary(const TransformerConfig& config, const std::filesystem::path& directory,
                            nlohmann::ordered_json& config_json);

}  // namespace draftsmith::model
