#include "model/families/rotary_keys.h"

#include <stdexcept>

#include <nlohmann/json.hpp>

namespace draftsmith::model {
namespace {

constexpr double kMostBase = 1e12;
constexpr int64_t kMostPositions = int64_t{1} << 24;

// rope_parameters or rope_scaling, or nothing.
const nlohmann::json* settings_of(ConfigReader& reader) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!reader.has(key)) continue;
    if (reader.at(key).is_object()) return &reader.at(key);
    reader.wrong(key, "is not an object", "an object with rope_type");
  }
  return nullptr;
}

void read_scaling(ConfigReader& settings, RotaryConfig& config) {
  const std::string type = settings.get_string(settings.has("rope_type") ? "rope_type" : "type", "default");
  if (type == "default") return;
  config.factor = settings.number("factor", 1.0, 1.0, 1e6);
  if (type == "linear") {
    config.scaling = RotaryScaling::kLinear;
  } else if (type == "llama3") {
    config.scaling = RotaryScaling::kLlama3;
    config.low_frequency_factor = settings.number("low_freq_factor", 1.0, 1e-6, 1e6);
    config.high_frequency_factor = settings.number("high_freq_factor", 4.0, 1e-6, 1e6);
    config.original_positions = settings.get_int("original_max_position_embeddings", {1, kMostPositions}, 8192);
    if (config.high_frequency_factor <= config.low_frequency_factor) {
      settings.wrong("high_freq_factor", "must be larger than low_freq_factor", "a larger number");
    }
  } else {
    settings.wrong(settings.has("rope_type") ? "rope_type" : "type", "is a rotary scaling that is not supported",
                   "default, linear or llama3");
  }
}

}  // namespace

RotaryConfig read_rotary(ConfigReader& reader, const std::string& base_key, int64_t width) {
  RotaryConfig config;
  config.width = width;
  config.base = reader.number(base_key, 10000.0, 1.0, kMostBase);
  if (const nlohmann::json* settings = settings_of(reader)) {
    ConfigReader inner = reader.within(*settings);
    config.base = inner.number("rope_theta", config.base, 1.0, kMostBase);
    read_scaling(inner, config);
  }
  return config;
}

nlohmann::ordered_json rotary_json(const RotaryConfig& config) {
  nlohmann::ordered_json out;
  out["rope_theta"] = config.base;
  switch (config.scaling) {
    case RotaryScaling::kNone:
      out["rope_type"] = "default";
      return out;
    case RotaryScaling::kLinear:
      out["rope_type"] = "linear";
      out["factor"] = config.factor;
      return out;
    case RotaryScaling::kLlama3:
      out["rope_type"] = "llama3";
      out["factor"] = config.factor;
      out["low_freq_factor"] = config.low_frequency_factor;
      out["high_freq_factor"] = config.high_frequency_factor;
      out["original_max_position_embeddings"] = config.original_positions;
      return out;
  }
  throw std::logic_error("unknown rotary scaling");
}

}  // namespace draftsmith::model
