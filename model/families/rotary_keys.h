// Keys of rotary position embeddings in config.json, in Transformers 5's form (rope_parameters) and the older ones
// (rope_theta, rope_scaling).
#pragma once

#include <cstdint>

#include <nlohmann/json_fwd.hpp>

#include "model/families/config_reader.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

// Reads rotary positions. `base_key` is the key of the base in older files (rope_theta, rotary_emb_base). Problems:
// unsupported scalings.
RotaryConfig read_rotary(ConfigReader& reader, const std::string& base_key, int64_t width);
// Returns the object under rope_parameters.
nlohmann::ordered_json rotary_json(const RotaryConfig& config);

}  // namespace draftsmith::model
