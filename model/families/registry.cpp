#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/families/family.h"
#include "model/files/model_kind.h"

namespace draftsmith::model {

namespace {

std::vector<std::string> known_names(std::string Family::*member) {
  std::vector<std::string> names;
  for (const Family& family : families()) {
    names.push_back(family.*member);
  }
  return names;
}

const Family* find(std::string Family::*member, const std::string& value) {
  for (const Family& family : families()) {
    if (family.*member == value) {
      return &family;
    }
  }
  return nullptr;
}

const Family& find_or_refuse(std::string Family::*member, const std::string& value, const Problem& problem) {
  if (const Family* family = find(member, value)) {
    return *family;
  }
  Problem full = problem;
  const auto known = known_names(member);
  full.expected = fmt::format("one of {}", fmt::join(known, ", "));
  full.found = brief(value);
  const std::string near = nearest(value, known);
  full.hint = near.empty() ? "" : "did you mean " + near + "?";
  throw UserError(full);
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies = {t5_family(),   mt5_family(),      llama_family(),
                                                gpt2_family(), gpt_neox_family(), bloom_family()};
  return kFamilies;
}

const Family& family_of(const nlohmann::json& config_json, const std::string& where) {
  const auto architectures = config_json.find("architectures");
  if (architectures != config_json.end() && architectures->is_array() && !architectures->empty() &&
      architectures->front().is_string()) {
    const size_t prefix = architecture_prefix(kind_of(config_json)).size();
    return find_or_refuse(&Family::architecture, architectures->front().get<std::string>().substr(prefix),
                          {.where = where + ": architectures",
                           .what = "this model architecture is not supported",
                           .expected = {},
                           .found = {},
                           .hint = {}});
  }
  const auto type = config_json.find("model_type");
  if (type != config_json.end() && type->is_string()) {
    return find_or_refuse(&Family::name, type->get<std::string>(),
                          {.where = where + ": model_type",
                           .what = "this model type is not supported",
                           .expected = {},
                           .found = {},
                           .hint = {}});
  }
  throw UserError(
      {.where = where,
       .what = "nothing says which architecture this model is",
       .expected = fmt::format("\"architectures\": [one of {}]", fmt::join(known_names(&Family::architecture), ", ")),
       .found = "neither architectures nor model_type",
       .hint = "is this the config.json of a Hugging Face model?"});
}

StoredTensor stored_parameter(const Family& family, const std::string& parameter, const TransformerConfig& config) {
  const bool added = parameter.ends_with(".primary_projection.weight") || parameter == "encoder_projection.weight";
  return added ? StoredTensor{.name = parameter} : family.stored(parameter, config);
}

const Family& family_named(const std::string& name) {
  return find_or_refuse(
      &Family::name, name,
      {.where = "model family", .what = "unknown model family", .expected = {}, .found = {}, .hint = {}});
}

}  // namespace draftsmith::model
