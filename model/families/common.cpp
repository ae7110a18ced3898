#include "model/families/common.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace draftsmith::model {

ConfigReader::ConfigReader(const nlohmann::json& object, std::string where, Problems& problems)
    : JsonReader(object, where, problems), object_(object), where_(std::move(where)), problems_(problems) {}

std::optional<int64_t> ConfigReader::optional_int(const std::string& key, IntRange range) {
  if (!has(key)) {
    return std::nullopt;
  }
  return get_int(key, range, range.min);
}

double ConfigReader::number(const std::string& key, double fallback, double least, double most) {
  const double value = get_double(key, fallback);
  if (value < least || value > most) {
    wrong(key, "is out of range", fmt::format("a number in {} to {}", least, most));
    return fallback;
  }
  return value;
}

void ConfigReader::wrong(const std::string& key, const std::string& what, const std::string& expected) {
  problems_.add({where_, fmt::format("'{}' {}", key, what), expected, has(key) ? brief(at(key)) : "nothing", ""});
}

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

std::vector<int64_t> stored_shape(const std::vector<int64_t>& shape, const StoredTensor& stored) {
  std::vector<int64_t> result = shape;
  result.front() *= stored.parts;
  if (stored.transposed) {
    std::reverse(result.begin(), result.end());
  }
  return result;
}

at::Tensor take_parameter(const at::Tensor& stored, const StoredTensor& where, int64_t heads) {
  at::Tensor outputs_first = where.transposed && stored.dim() == 2 ? stored.t() : stored;
  const int64_t outputs = outputs_first.size(0) / where.parts;
  switch (where.join) {
    case Join::kNone:
      break;
    case Join::kBlocks:
      return outputs_first.narrow(0, where.part * outputs, outputs);
    case Join::kHeads:
      return outputs_first.unflatten(0, {heads, where.parts, outputs / heads}).select(1, where.part).flatten(0, 1);
  }
  return outputs_first;
}

at::Tensor join_parameters(const std::vector<at::Tensor>& parameters, const StoredTensor& where, int64_t heads) {
  at::Tensor joined = parameters.front();
  if (where.join == Join::kBlocks) {
    joined = at::cat(parameters);
  } else if (where.join == Join::kHeads) {
    std::vector<at::Tensor> by_head;
    for (const at::Tensor& parameter : parameters) {
      by_head.push_back(parameter.unflatten(0, {heads, parameter.size(0) / heads}));
    }
    joined = at::stack(by_head, 1).flatten(0, 2);
  }
  return where.transposed && joined.dim() == 2 ? joined.t() : joined;
}

std::optional<Activation> activation_named(const std::string& name) {
  static const std::map<std::string, Activation> kNames = {{"relu", Activation::kRelu},
                                                           {"gelu_new", Activation::kGeluTanh},
                                                           {"gelu_pytorch_tanh", Activation::kGeluTanh},
                                                           {"gelu_fast", Activation::kGeluTanh},
                                                           {"gelu", Activation::kGelu},
                                                           {"silu", Activation::kSilu},
                                                           {"swish", Activation::kSilu}};
  const auto it = kNames.find(name);
  return it == kNames.end() ? std::nullopt : std::optional(it->second);
}

std::string activation_name(Activation activation) {
  switch (activation) {
    case Activation::kRelu:
      return "relu";
    case Activation::kGeluTanh:
      return "gelu_new";
    case Activation::kGelu:
      return "gelu";
    case Activation::kSilu:
      return "silu";
  }
  throw std::logic_error("activation_name: unknown activation");
}

Activation read_activation(ConfigReader& reader, const std::string& key, const std::string& fallback) {
  const auto activation = activation_named(reader.get_string(key, fallback));
  if (!activation) {
    reader.wrong(key, "is not a known activation", "relu, gelu, gelu_new, gelu_pytorch_tanh or silu");
  }
  return activation.value_or(Activation::kGelu);
}

TransformerConfig decoder_only(const std::string& family) {
  TransformerConfig config;
  config.family = family;
  config.encoder_decoder = false;
  config.norm = Norm::kRms;
  config.norm_epsilon = 1e-6;
  return config;
}

TransformerConfig decoder_only_with_biases(const std::string& family) {
  TransformerConfig config = decoder_only(family);
  config.norm = Norm::kLayer;
  config.norm_epsilon = 1e-5;
  config.projection_bias = config.output_bias = config.feed_forward_bias = true;
  return config;
}

StoredTensor stored_by(const NameTable& table, const std::string& parameter) {
  static const std::map<std::string, int64_t> kJoined = {
      {"self_attention.query", 0}, {"self_attention.key", 1}, {"self_attention.value", 2}};
  if (const auto outside = table.outside.find(parameter); outside != table.outside.end()) {
    return {.name = outside->second};
  }
  // "decoder.3.self_attention.query.weight": layer, module and kind.
  const std::string stack = "decoder.";
  const size_t layer_end = parameter.find('.', stack.size());
  const size_t module_end = parameter.rfind('.');
  const bool in_block = parameter.starts_with(stack) && layer_end < module_end;
  const std::string module = in_block ? parameter.substr(layer_end + 1, module_end - layer_end - 1) : "";
  const auto stored = table.modules.find(module);
  if (stored == table.modules.end()) {
    throw std::logic_error("no stored name for parameter " + parameter);
  }
  const std::string kind = parameter.substr(module_end);  // ".weight" or ".bias"
  StoredTensor where{.name = table.blocks + parameter.substr(stack.size(), layer_end - stack.size()) + "." +
                             stored->second + kind};
  where.transposed = table.transposed && kind == ".weight" && !module.ends_with(".norm");
  if (const auto part = kJoined.find(module); part != kJoined.end() && table.join != Join::kNone) {
    where.join = table.join;
    where.part = part->second;
    where.parts = static_cast<int64_t>(kJoined.size());
  }
  return where;
}

int64_t read_split_width(ConfigReader& reader, const TransformerConfig& config, const std::string& heads_key,
                         const std::string& width_key) {
  if (config.width % config.heads != 0) {
    reader.wrong(heads_key, "does not divide " + width_key, fmt::format("a divisor of {}", config.width));
  }
  return std::max<int64_t>(1, config.width / config.heads);
}

void read_decoder_only(ConfigReader& reader, TransformerConfig& config, const UsualIds& usual) {
  const IntRange ids{0, config.vocabulary - 1};
  config.eos = reader.get_ints("eos_token_id", ids);
  if (config.eos.empty() && usual.eos < config.vocabulary) {
    config.eos = {usual.eos};
  }
  config.bos = reader.optional_int("bos_token_id", ids);
  config.pad = reader.optional_int("pad_token_id", ids).value_or(config.eos.empty() ? 0 : config.eos.front());
  config.decoder_start = config.bos.value_or(config.pad);
  if (!config.bos && !reader.has("bos_token_id") && usual.bos < config.vocabulary) {
    config.bos = usual.bos;
    config.decoder_start = usual.bos;
  }
  config.initializer_range = reader.number("initializer_range", 0.02, 0.0, 1e3);
  if (reader.has("quantization_config")) {
    reader.wrong("quantization_config", "asks for quantised weights, which are not supported",
                 "weights in F32, F16 or BF16");
  }
}

void write_decoder_only(const TransformerConfig& config, nlohmann::ordered_json& out) {
  out["vocab_size"] = config.vocabulary;
  out["initializer_range"] = config.initializer_range;
  out["tie_word_embeddings"] = config.tied_head;
  out["use_cache"] = true;
  if (config.bos) {
    out["bos_token_id"] = *config.bos;
  } else {
    out["bos_token_id"] = nullptr;
  }
  if (config.eos.size() == 1) {
    out["eos_token_id"] = config.eos.front();
  } else if (!config.eos.empty()) {
    out["eos_token_id"] = config.eos;
  } else {
    out["eos_token_id"] = nullptr;
  }
  out["pad_token_id"] = config.pad;
}

}  // namespace draftsmith::model
