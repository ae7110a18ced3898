// The list of families, the family of a config.json, and where its parameters are stored.

#include "model/families/family.h"

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

[[noreturn]] void refuse(Problem unknown, const std::string& where, const std::string& what, const std::string& found) {
  unknown.where = where;
  unknown.what = what;
  unknown.found = brief(found);
  throw UserError(std::move(unknown));
}

const Family& with_architecture(const std::string& architecture, const std::string& where) {
  for (const Family& family : families()) {
    if (family.architecture == architecture) return family;
  }
  refuse(unknown_name("architecture", architecture, known_architectures()), where + ": architectures",
         "this model architecture is not supported", architecture);
}

const Family& with_model_type(const std::string& type, const std::string& where) {
  if (const Family* family = families().find(type)) return *family;
  refuse(unknown_name("model type", type, families().names()), where + ": model_type",
         "this model type is not supported", type);
}

}  // namespace

const Registry<Family>& families() {
  static const Registry<Family> kFamilies(
      "model family", {t5_family(), mt5_family(), llama_family(), gpt2_family(), gpt_neox_family(), bloom_family()});
  return kFamilies;
}

const Family& family_of(const nlohmann::json& config_json, const std::string& where, const std::string& prefix) {
  const auto architectures = config_json.find("architectures");
  if (architectures != config_json.end() && architectures->is_array() && !architectures->empty() &&
      architectures->front().is_string()) {
    return with_architecture(architectures->front().get<std::string>().substr(prefix.size()), where);
  }
  const auto type = config_json.find("model_type");
  if (type != config_json.end() && type->is_string()) return with_model_type(type->get<std::string>(), where);
  throw UserError({.where = where,
                   .what = "does not name the model's architecture",
                   .expected = fmt::format("\"architectures\": [one of {}]", fmt::join(known_architectures(), ", ")),
                   .found = "neither architectures nor model_type",
                   .hint = "is this the config.json of a Hugging Face model?"});
}

StoredTensor stored_parameter(const Family& family, const std::string& parameter, const TransformerConfig& config) {
  const bool added = parameter.ends_with(".primary_projection.weight") || parameter == "encoder_projection.weight";
  return added ? StoredTensor{.name = parameter} : family.stored(parameter, config);
}

}  // namespace draftsmith::model
