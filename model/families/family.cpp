// The list of families, the family of a config.json, and where its parameters are stored.
#include "model/families/family.h"

#include <map>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace draftsmith::model {
namespace {

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const Family& family : families()) names.push_back(family.architecture);
  return names;
}

}  // namespace

const Registry<Family>& families() {
  static const Registry<Family> kFamilies(
      "model family", {t5_family(), mt5_family(), llama_family(), gpt2_family(), gpt_neox_family(), bloom_family()});
  return kFamilies;
}

const Family& family_of(const nlohmann::json& config_json, const std::string& where, const std::string& prefix) {
  const auto unsupported = [&](const char* key, const char* subject, const std::string& name,
                               const std::vector<std::string>& known) {
    Problem unknown = unknown_name(subject, name, known);
    unknown.where = where + ": " + key;
    unknown.what = fmt::format("this {} is not supported", subject);
    unknown.found = brief(name);
    return UserError(std::move(unknown));
  };
  const auto architectures = config_json.find("architectures");
  if (architectures != config_json.end() && architectures->is_array() && !architectures->empty() &&
      architectures->front().is_string()) {
    const std::string architecture = architectures->front().get<std::string>().substr(prefix.size());
    for (const Family& family : families()) {
      if (family.architecture == architecture) return family;
    }
    throw unsupported("architectures", "model architecture", architecture, known_architectures());
  }
  if (const auto type = config_json.find("model_type"); type != config_json.end() && type->is_string()) {
    if (const Family* family = families().find(type->get<std::string>())) return *family;
    throw unsupported("model_type", "model type", type->get<std::string>(), families().names());
  }
  throw UserError({.where = where,
                   .what = "does not name the model's architecture",
                   .expected = fmt::format("\"architectures\": [one of {}]", fmt::join(known_architectures(), ", ")),
                   .found = "neither architectures nor model_type",
                   .hint = "is this the config.json of a Hugging Face model?"});
}

TransformerConfig read_config(const Family& family, const ConfigReader& reader) {
  ConfigKeys keys(reader);
  TransformerConfig config = family.base;
  family.keys(keys, config);
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

StoredTensor stored_parameter(const Family& family, const std::string& parameter, const TransformerConfig& config) {
  static const std::map<std::string, int64_t> kJoined = {
      {"self_attention.query", 0}, {"self_attention.key", 1}, {"self_attention.value", 2}};
  const NameTable& table = family.names(config);
  if (parameter.ends_with(".primary_projection.weight") || parameter == "encoder_projection.weight") {
    return {.name = parameter};
  }
  if (const auto outside = table.outside.find(parameter); outside != table.outside.end()) {
    return {.name = outside->second};
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
  if (const auto part = kJoined.find(module); part != kJoined.end() && table.join != Join::kNone) {
    where.join = table.join;
    where.part = part->second;
    where.parts = static_cast<int64_t>(kJoined.size());
  }
  return where;
}

}  // namespace draftsmith::model
