// Keys of rotary position embeddings in config.json, in Transformers 5's form (rope_parameters) and the older ones
// (rope_theta, rope_scaling).
#pragma once

#include <cstdint>

#include <nlohmann/json_fwd.hpp>

#include "model/families/config_reader.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

// `base_key` is where older files keep the base (rope_theta, rotary_emb_base). Problems: scalings not supported here.
RotaryConfig read_rotary(ConfigReader& reader, const std::string& base_key, int64_t width);
// The object under rope_parameters.
nlohmann::ordered_json rotary_json(const RotaryConfig& config);

}  // namespace draftsmith::model
