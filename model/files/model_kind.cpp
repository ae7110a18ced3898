#include "model/files/model_kind.h"

#include <array>

#include "base/error.h"
#include "base/json.h"

namespace draftsmith::model {

namespace {

struct KindNames {
  ModelKind kind;
  const char* prefix;
  const char* model_type;
  const char* name;
  const char* hint;  // what to do with such a directory where another is wanted
};

constexpr std::array<KindNames, 4> kKinds = {{
    {ModelKind::kOrdinary, "", "", "an ordinary model", "give a directory that a Tandem was trained into"},
    {ModelKind::kTandem, "DraftsmithTandem", "draftsmith_tandem", "a Tandem secondary",
     "it reads another model's representations: decode with its primary and this as the drafter "
     "(--model PRIMARY --drafter DIR)"},
    {ModelKind::kBlockPrediction, "DraftsmithBlockPrediction", "draftsmith_block_prediction",
     "a model of block prediction", "it predicts blocks of tokens at once and is made for comparisons of training"},
    {ModelKind::kDeepTandem, "DraftsmithDeepTandem", "draftsmith_deep_tandem", "a deep Tandem",
     "it is a pair of models that work as one and is made for comparisons of training"},
}};

const KindNames& names_of(ModelKind kind) {
  return kKinds[static_cast<size_t>(kind)];
}

}  // namespace

ModelKind kind_of(const TransformerConfig& config) {
  if (config.tandem_secondary()) return ModelKind::kTandem;
  return config.block_attention > 0 ? ModelKind::kBlockPrediction : ModelKind::kOrdinary;
}

ModelKind kind_of(const nlohmann::json& config_json) {
  const auto architectures = config_json.find("architectures");
  if (architectures == config_json.end() || !architectures->is_array() || architectures->empty() ||
      !architectures->front().is_string()) {
    return ModelKind::kOrdinary;
  }
  const auto architecture = architectures->front().get<std::string>();
  for (const KindNames& names : kKinds) {
    if (names.kind != ModelKind::kOrdinary && architecture.starts_with(names.prefix)) return names.kind;
  }
  return ModelKind::kOrdinary;
}

std::optional<ModelKind> kind_of_directory(const std::filesystem::path& directory) {
  std::error_code status;
  if (!std::filesystem::is_regular_file(directory / "config.json", status)) return std::nullopt;
  try {
    return kind_of(load_json(directory / "config.json", {.max_bytes = 16'000'000}));
  } catch (const UserError&) {
    return std::nullopt;
  }
}

std::string architecture_prefix(ModelKind kind) {
  return names_of(kind).prefix;
}

std::string model_type(ModelKind kind, const std::string& family) {
  return kind == ModelKind::kOrdinary ? family : names_of(kind).model_type;
}

std::string kind_name(ModelKind kind) {
  return names_of(kind).name;
}

void require_kind(ModelKind found, ModelKind wanted, const std::string& where) {
  if (found == wanted) return;
  throw UserError({.where = where,
                   .what = "is a model of another kind",
                   .expected = kind_name(wanted),
                   .found = kind_name(found),
                   .hint = names_of(found).hint});
}

}  // namespace draftsmith::model
