#include "model/files/model_kind.h"

#include "base/error.h"
#include "base/json.h"

namespace draftsmith::model {

const ModelKind& kind_of(const TransformerConfig& config) {
  for (const ModelKind& kind : model_kinds()) {
    if (kind.describes != nullptr && kind.describes(config)) return kind;
  }
  return ordinary_kind();
}

const ModelKind& kind_of(const nlohmann::json& config_json) {
  const auto architectures = config_json.find("architectures");
  if (architectures == config_json.end() || !architectures->is_array() || architectures->empty() ||
      !architectures->front().is_string()) {
    return ordinary_kind();
  }
  const auto architecture = architectures->front().get<std::string>();
  for (const ModelKind& kind : model_kinds()) {
    if (!kind.prefix.empty() && architecture.starts_with(kind.prefix)) return kind;
  }
  return ordinary_kind();
}

const ModelKind& kind_of_directory(const std::filesystem::path& directory) {
  std::error_code status;
  if (!std::filesystem::is_regular_file(directory / "config.json", status)) return ordinary_kind();
  try {
    return kind_of(load_json(directory / "config.json", {.max_bytes = 16'000'000}));
  } catch (const UserError&) {
    return ordinary_kind();
  }
}

void require_kind(const ModelKind& found, const ModelKind& wanted, const std::string& where) {
  if (found == wanted) return;
  throw UserError({.where = where,
                   .what = "is a model of another kind",
                   .expected = wanted.name,
                   .found = found.name,
                   .hint = found.hint});
}

const nlohmann::json* kind_object(ConfigReader& reader, const std::string& key) {
  if (reader.has(key) && reader.at(key).is_object()) return &reader.at(key);
  reader.wrong(key, "is missing from a model of this architecture", "a JSON object");
  return nullptr;
}

}  // namespace draftsmith::model
