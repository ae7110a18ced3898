#include "model/families/common.h"

#include <map>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace draftsmith::model {

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
    reader.wrong(key, "is no activation known here", "relu, gelu, gelu_new, gelu_pytorch_tanh or silu");
  }
  return activation.value_or(Activation::kGelu);
}

std::optional<BlockParameter> decoder_parameter(const std::string& parameter) {
  const std::string stack = "decoder.";
  if (!parameter.starts_with(stack)) {
    return std::nullopt;
  }
  const size_t layer_end = parameter.find('.', stack.size());
  const size_t part_end = layer_end == std::string::npos ? layer_end : parameter.find('.', layer_end + 1);
  if (part_end == std::string::npos) {
    return std::nullopt;
  }
  return BlockParameter{parameter.substr(stack.size(), layer_end - stack.size()),
                        parameter.substr(layer_end + 1, part_end - layer_end - 1), parameter.substr(part_end + 1)};
}

void read_decoder_only(ConfigReader& reader, TransformerConfig& config, std::optional<int64_t> eos) {
  const IntRange ids{0, config.vocabulary - 1};
  config.encoder_decoder = false;
  config.eos = reader.get_ints("eos_token_id", ids);
  if (config.eos.empty() && eos && *eos < config.vocabulary) {
    config.eos = {*eos};
  }
  config.bos = reader.optional_int("bos_token_id", ids);
  config.pad = reader.optional_int("pad_token_id", ids).value_or(config.eos.empty() ? 0 : config.eos.front());
  config.decoder_start = config.bos.value_or(config.pad);
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
