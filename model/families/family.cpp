#include "model/families/family.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/logging.h"

namespace draftsmith::model {

double ConfigReader::number(const std::string& key, double fallback, double least, double most) {
  const double value = get_double(key, fallback);
  if (value < least || value > most) {
    wrong(key, "is out of range", fmt::format("a number in {} to {}", least, most));
    return fallback;
  }
  return value;
}

bool ConfigKeys::read_or_write(const std::string& key, const nlohmann::ordered_json& value,
                               const nlohmann::ordered_json& fallback) {
  listed_.insert(key);
  if (to_ != nullptr && (all_ || value != fallback)) (*to_)[key] = value;
  return reads();
}

void ConfigKeys::integer(const std::string& key, int64_t& value, IntRange range, std::optional<int64_t> fallback) {
  if (!read_or_write(key, value, fallback.value_or(value - 1))) return;
  value = fallback ? from_->get_int(key, range, *fallback) : from_->get_int(key, range);
}

void ConfigKeys::integer(const std::string& key, std::optional<int64_t>& value, IntRange range) {
  if (!read_or_write(key, value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(), nullptr)) return;
  if (has(key)) value = from_->get_int(key, range, range.min);
}

void ConfigKeys::number(const std::string& key, double& value, double fallback, double least, double most) {
  if (read_or_write(key, value, fallback)) value = from_->number(key, fallback, least, most);
}

void ConfigKeys::number(const std::string& key, std::optional<double>& value, double least, double most) {
  if (!read_or_write(key, value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(), nullptr)) return;
  if (has(key)) value = from_->number(key, least, least, most);
}

void ConfigKeys::flag(const std::string& key, bool& value, bool fallback) {
  if (read_or_write(key, value, fallback)) value = from_->get_bool(key, fallback);
}

void ConfigKeys::text(const std::string& key, std::string& value, const std::string& fallback) {
  if (read_or_write(key, value, fallback)) value = from_->get_string(key, fallback);
}

void ConfigKeys::integers(const std::string& key, std::vector<int64_t>& value, IntRange range) {
  if (read_or_write(key, value, nlohmann::ordered_json::array()) && has(key)) value = from_->get_ints(key, range);
}

void ConfigKeys::end_ids(const std::string& key, std::vector<int64_t>& value, IntRange range) {
  if (to_ != nullptr && value.size() == 1) {
    (*to_)[key] = value.front();
  } else {
    integers(key, value, range);
  }
}

bool ConfigKeys::occurs(const std::string& key, int64_t id, TokenIds ids) {
  if (id >= 0 && id < ids.vocabulary) return true;
  left_out_.insert(fmt::format("{} {}", key, id));
  return false;
}

void ConfigKeys::integer(const std::string& key, int64_t& value, TokenIds ids, int64_t fallback) {
  std::optional<int64_t> id;
  if (!reads()) id = value;
  integer(key, id, ids);
  if (reads()) value = id.value_or(fallback);
}

void ConfigKeys::integer(const std::string& key, std::optional<int64_t>& value, TokenIds ids) {
  const std::optional<int64_t> before = value;
  integer(key, value, IntRange{});
  if (reads() && has(key) && !occurs(key, *value, ids)) value = before;
}

void ConfigKeys::integers(const std::string& key, std::vector<int64_t>& value, TokenIds ids) {
  integers(key, value, IntRange{});
  if (reads()) std::erase_if(value, [&](int64_t id) { return !occurs(key, id, ids); });
}

void ConfigKeys::end_ids(const std::string& key, std::vector<int64_t>& value, TokenIds ids) {
  if (!reads()) return end_ids(key, value, IntRange{});
  integers(key, value, ids);
}

void ConfigKeys::warn_of_ids() {
  if (left_out_.empty() || !from_->problems().empty()) return;
  log_warning_once("{}: token ids that the vocabulary does not have are ignored: {}", from_->where(),
                   fmt::join(left_out_, ", "));
}

void ConfigKeys::activation(const std::string& key, Activation& value, const std::string& fallback) {
  if (!read_or_write(key, activations().name(value), fallback)) return;
  const auto* named = activations().find(from_->get_string(key, fallback));
  if (named != nullptr) {
    value = named->value;
  } else {
    from_->wrong(key, "is not a known activation", "relu, gelu, gelu_new, gelu_pytorch_tanh or silu");
  }
}

void ConfigKeys::fixed(const std::string& key, bool value) {
  if (!read_or_write(key, value, nullptr) || from_->get_bool(key, value) == value) return;
  from_->wrong(key, "asks for a form of this family that is not supported", value ? "true" : "false");
}

bool ConfigKeys::custom(const std::string& key, const nlohmann::ordered_json& value) {
  return read_or_write(key, value, value.empty() ? value : nlohmann::ordered_json()) && has(key);
}

void ConfigKeys::also(const std::string& key, const nlohmann::ordered_json& value) {
  listed_.insert(key);
  if (to_ != nullptr) (*to_)[key] = value;
}

const char* ConfigKeys::either(const char* key, const char* other) {
  listed_.insert({key, other});
  if (!has(other)) return key;
  if (has(key) && from_->at(key) != from_->at(other)) {
    from_->wrong(other, fmt::format("is another name of '{}', and differs from it", key), brief(from_->at(key)));
  }
  return other;
}

std::optional<ConfigKeys> ConfigKeys::within(const std::string& key) {
  listed_.insert(key);
  if (to_ != nullptr) return ConfigKeys((*to_)[key], all_);
  if (has(key) && from_->at(key).is_object()) {
    return ConfigKeys(ConfigReader(from_->at(key), from_->where(), from_->problems()));
  }
  from_->wrong(key, "is missing from a model of this architecture", "a JSON object");
  return std::nullopt;
}

std::vector<int64_t> stored_shape(const std::vector<int64_t>& shape, const StoredTensor& stored) {
  std::vector<int64_t> result = shape;
  if (stored.all_rows > 0) result.front() = stored.all_rows;
  if (stored.transposed) {
    std::reverse(result.begin(), result.end());
  }
  if (stored.one_row) result.insert(result.begin(), 1);
  return result;
}

at::Tensor take_parameter(const at::Tensor& stored, const StoredTensor& where, int64_t heads) {
  if (where.one_row) return stored.squeeze(0);
  at::Tensor outputs_first = where.transposed && stored.dim() == 2 ? stored.t() : stored;
  switch (where.join) {
    case Join::kNone:
      break;
    case Join::kBlocks:
      return outputs_first.narrow(0, where.first, where.rows);
    case Join::kHeads:
      return outputs_first.unflatten(0, {heads, where.parts, where.rows / heads}).select(1, where.part).flatten(0, 1);
  }
  return outputs_first;
}

at::Tensor join_parameters(const std::vector<at::Tensor>& parameters, const StoredTensor& where, int64_t heads) {
  at::Tensor joined = parameters.front();
  if (where.one_row) return joined.unsqueeze(0);
  if (where.join == Join::kBlocks) {
    joined = at::cat(parameters);
  } else if (where.join == Join::kHeads) {
    const auto by_head = from_each(parameters, [&](const at::Tensor& parameter) {
      return parameter.unflatten(0, {heads, parameter.size(0) / heads});
    });
    joined = at::stack(by_head, 1).flatten(0, 2);
  }
  return where.transposed && joined.dim() == 2 ? joined.t() : joined;
}

const NamedValues<Activation>& activations() {
  using enum PostOp;
  // The first name of an activation is the one that is written.
  static const NamedValues<Activation> kActivations("activation", {{"relu", kRelu},
                                                                   {"gelu_new", kGeluTanh},
                                                                   {"gelu_pytorch_tanh", kGeluTanh},
                                                                   {"gelu_fast", kGeluTanh},
                                                                   {"gelu", kGelu},
                                                                   {"silu", kSilu},
                                                                   {"swish", kSilu}});
  return kActivations;
}

TransformerConfig decoder_only(const std::string& family) {
  TransformerConfig config;
  config.family = family;
  config.encoder_decoder = false;
  config.eos = {};
  return config;
}

TransformerConfig with_layer_norms(const std::string& family, bool encoder_decoder) {
  TransformerConfig config = decoder_only(family);
  config.encoder_decoder = encoder_decoder;
  config.norm = Norm::kLayer;
  config.norm_epsilon = 1e-5;
  config.projection_bias = config.output_bias = config.feed_forward_bias = true;
  return config;
}

void read_split_width(ConfigKeys& keys, TransformerConfig& config, const std::string& heads_key) {
  if (!keys.reads()) return;
  if (config.width % config.heads != 0) {
    keys.reader().wrong(heads_key, "does not divide the width", fmt::format("a divisor of {}", config.width));
  }
  config.head_width = std::max<int64_t>(1, config.width / config.heads);
}

void decoder_only_keys(ConfigKeys& keys, TransformerConfig& config, const DecoderOnlyDefaults& defaults) {
  keys.integer("vocab_size", config.vocabulary, {2, kMaxVocabulary}, defaults.vocabulary);
  keys.number("initializer_range", config.initializer_range, 0.02, 0.0, 1e3);
  keys.flag("tie_word_embeddings", config.tied_head, defaults.tied_head);
  keys.also("use_cache", true);
  if (keys.has("is_encoder_decoder")) keys.fixed("is_encoder_decoder", false);
  const TokenIds ids{config.vocabulary};
  keys.integer("bos_token_id", config.bos, ids);
  keys.end_ids("eos_token_id", config.eos, ids);
  if (config.eos.empty()) keys.also("eos_token_id", nullptr);
  const auto fits = [&](const std::optional<int64_t>& id) { return id && *id < config.vocabulary; };
  // Null, and an id that never occurs: outputs have no end but the longest length.
  const bool eos_given = keys.has("eos_token_id") || (keys.reads() && keys.reader().says_null("eos_token_id"));
  if (keys.reads() && !eos_given && fits(defaults.eos)) config.eos = {*defaults.eos};
  keys.integer("pad_token_id", config.pad, ids, config.eos.empty() ? 0 : config.eos.front());
  if (!keys.reads()) return;
  if (!config.bos && fits(defaults.bos)) config.bos = defaults.bos;
  config.decoder_start = config.bos.value_or(config.pad);
  config.attention_scale = 1.0 / std::sqrt(static_cast<double>(config.head_width));
}

const Registry<Family>& families() {
  static const Registry<Family> kFamilies("model family", [] {
    std::vector<Family> all = t5_families();
    for (const auto& relatives : {bart_families, llama_families})
      std::ranges::move(relatives(), std::back_inserter(all));
    for (const auto& family : {gpt2_family, opt_family, gpt_neox_family, bloom_family}) all.push_back(family());
    return all;
  }());
  return kFamilies;
}

const Family& family_of(const nlohmann::json& config_json, const std::string& where, const std::string& prefix) {
  const auto unsupported = [&](const char* key, const char* subject, const std::string& name,
                               const std::vector<std::string>& known) {
    Problem unknown = unknown_name(subject, name, known);
    unknown.where = where + ": " + key;
    unknown.what = fmt::format("this {} is not supported", subject);
    unknown.found = brief(name);
    if (config_json.contains("text_config")) unknown.hint = "of models of images and text, none is read";
    return UserError(std::move(unknown));
  };
  const auto architectures = config_json.find("architectures");
  if (architectures != config_json.end() && architectures->is_array() && !architectures->empty() &&
      architectures->front().is_string()) {
    const std::string architecture = architectures->front().get<std::string>().substr(prefix.size());
    for (const Family& family : families()) {
      const std::vector<std::string>& others = family.other_architectures;
      if (family.architecture == architecture || std::ranges::find(others, architecture) != others.end()) return family;
    }
    throw unsupported("architectures", "model architecture", architecture,
                      from_each(families(), &Family::architecture));
  }
  if (const auto type = config_json.find("model_type"); type != config_json.end() && type->is_string()) {
    if (const Family* family = families().find(type->get<std::string>())) return *family;
    throw unsupported("model_type", "model type", type->get<std::string>(), families().names());
  }
  throw UserError({.where = where,
                   .what = "does not name the model's architecture",
                   .expected = fmt::format("\"architectures\": [one of {}]",
                                           fmt::join(from_each(families(), &Family::architecture), ", ")),
                   .found = "neither architectures nor model_type",
                   .hint = "is this the config.json of a Hugging Face model?"});
}

std::vector<int64_t> layers_with_windows(int64_t layers, int64_t interval) {
  std::vector<int64_t> windowed;
  for (int64_t layer = 0; layer < layers; ++layer) {
    if ((layer + 1) % interval != 0) windowed.push_back(layer);
  }
  return windowed;
}

void derive_from_sizes(const Family& family, TransformerConfig& config) {
  const FamilyShapes& shapes = family.shapes;
  // T5 does not scale attention; its initial weights do.
  if (config.positions != Positions::kRelativeBias) {
    config.attention_scale = 1.0 / std::sqrt(static_cast<double>(config.head_width));
  }
  if (shapes.scaled_embedding) config.embedding_scale = std::sqrt(static_cast<double>(config.width));
  if (config.positions == Positions::kRotary) config.rotary.width = config.head_width;
  if (config.window_rotary) config.window_rotary->width = config.head_width;
  if (shapes.window_interval > 0) {
    config.window_layers = layers_with_windows(config.decoder_layers, shapes.window_interval);
  }
  const int64_t pause = shapes.unrotated_interval;
  for (int64_t layer = pause; pause > 0 && layer <= config.decoder_layers; layer += pause) {
    config.unrotated_layers.push_back(layer - 1);
  }
}

TransformerConfig read_config(const Family& family, ConfigKeys& keys) {
  TransformerConfig config = family.base;
  family.keys(keys, config);
  keys.warn_of_ids();
  if (keys.has("is_causal")) keys.fixed("is_causal", true);  // Transformers' masks of all families follow it
  if (keys.has("quantization_config")) {
    keys.reader().wrong("quantization_config", "asks for quantised weights, which are not supported",
                        "weights in F32, F16 or BF16");
  }
  return config;
}

nlohmann::ordered_json write_config(const Family& family, TransformerConfig config) {
  nlohmann::ordered_json out;
  ConfigKeys keys(out, true);
  family.keys(keys, config);
  return out;
}

namespace {

using JoinedParts = std::vector<std::pair<std::string, int64_t>>;  // modules and their outputs

// Completes the place of a module's parameter if `parts` are joined and it is one of them.
void place_in(const JoinedParts& parts, Join join, const std::string& module, StoredTensor& where) {
  const auto own = std::ranges::find(parts, module, &JoinedParts::value_type::first);
  if (join == Join::kNone || own == parts.end()) return;
  where.join = join;
  where.part = own - parts.begin();
  where.parts = static_cast<int64_t>(parts.size());
  where.rows = own->second;
  for (auto part = parts.begin(); part != parts.end(); ++part) {
    if (part < own) where.first += part->second;
    where.all_rows += part->second;
  }
}

}  // namespace

StoredTensor stored_parameter(const Family& family, const std::string& parameter, const TransformerConfig& config) {
  const NameTable& table = family.names(config);
  if (parameter.ends_with(".primary_projection.weight") || parameter == "encoder_projection.weight" ||
      parameter.starts_with("feature_")) {
    return {.name = parameter};
  }
  if (const auto outside = table.outside.find(parameter); outside != table.outside.end()) {
    return {.name = outside->second, .one_row = parameter == "head.bias"};
  }
  // "decoder.3.self_attention.query.weight": stack, layer, module and kind.
  const size_t stack_end = parameter.find('.');
  const size_t layer_end = parameter.find('.', stack_end + 1);
  const size_t module_end = parameter.rfind('.');
  const std::string stack = parameter.substr(0, stack_end);
  const bool in_block = table.blocks.contains(stack) && layer_end < module_end;
  const std::string module = in_block ? parameter.substr(layer_end + 1, module_end - layer_end - 1) : "";
  auto stored = table.modules.find(stack + "." + module);
  if (stored == table.modules.end()) stored = table.modules.find(module);
  if (stored == table.modules.end()) throw std::logic_error("no stored name for parameter " + parameter);
  const std::string kind = parameter.substr(module_end);  // ".weight" or ".bias"
  StoredTensor where{.name = table.blocks.at(stack) + parameter.substr(stack_end + 1, layer_end - stack_end - 1) + "." +
                             stored->second + kind};
  where.transposed = table.transposed && kind == ".weight" && !module.ends_with(".norm");
  const int64_t keys = config.key_value_heads() * config.head_width;
  place_in({{"self_attention.query", config.heads * config.head_width},
            {"self_attention.key", keys},
            {"self_attention.value", keys}},
           table.join, module, where);
  place_in({{"feed_forward.gate", config.ff_width}, {"feed_forward.up", config.ff_width}},
           table.joined_gate ? Join::kBlocks : Join::kNone, module, where);
  return where;
}

}  // namespace draftsmith::model
