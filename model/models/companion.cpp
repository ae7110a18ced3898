#include "model/models/companion.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "model/files/model_directory.h"
#include "model/transformer/parameters.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;

std::string kind_of_model(const TransformerConfig& config) {
  return config.encoder_decoder ? "encoder-decoder" : "decoder-only";
}

// Resolves a path as the system does: after a link, `..` leads out of the directory that the link points to.
fs::path resolved(const fs::path& path) {
  std::error_code error;
  const fs::path found = fs::weakly_canonical(path, error);
  return error ? path.lexically_normal() : found;
}

bool is_sha256(const std::string& text) {
  return text.size() == 64 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
}

std::string named(const fs::path& companion, const std::string& hash) {
  return fmt::format("{} (sha256 {})", companion.string(), hash.substr(0, 16));
}

}  // namespace

void require_same(const CompanionRole& role, const PairNames& names, const char* what,
                  const std::pair<std::string, std::string>& own_and_companion, Problems& problems) {
  const auto& [own, companion] = own_and_companion;
  if (own == companion) return;
  problems.add({.where = names.own,
                .what = fmt::format("disagrees with its {} {} about {}", role.role, names.companion, what),
                .expected = fmt::format("{}, as the {}", companion, role.role),
                .found = own});
}

void check_pair(const CompanionRole& role, const TransformerConfig& own, const TransformerConfig& companion,
                const PairNames& names, Problems& problems) {
  const auto same = [&](const char* what, const std::string& ours, const std::string& theirs) {
    require_same(role, names, what, {ours, theirs}, problems);
  };
  same("the kind of model", kind_of_model(own), kind_of_model(companion));
  // Vocabularies may differ by ids that pad them; where there are tokenizers, those are compared. Both models read the
  // own model's padding.
  if (own.pad >= companion.vocabulary) {
    problems.add({.where = names.own,
                  .what = fmt::format("its {} {} lacks the padding token", role.role, names.companion),
                  .expected = fmt::format("more than {} ids", own.pad),
                  .found = std::to_string(companion.vocabulary)});
  }
  same("the ids that end a text", fmt::format("{}", fmt::join(own.eos, ", ")),
       fmt::format("{}", fmt::join(companion.eos, ", ")));
  // A decoder-only model is given it too, where a prompt is empty.
  same("the start id", std::to_string(own.decoder_start), std::to_string(companion.decoder_start));
}

std::unique_ptr<TransformerModel> with_projections(const TransformerConfig& config, const TransformerModel& ordinary,
                                                   const ProjectionOptions& projections) {
  std::map<std::string, at::Tensor> parameters;
  for (const ParameterSpec& spec : expected_parameters(config)) {
    const auto own = ordinary.parameters().find(spec.name);
    const bool kept = own != ordinary.parameters().end();
    const at::Tensor value =
        kept ? own->second.detach().clone() : initial_projection(spec, projections.start, projections.seed);
    parameters[spec.name] = value.to(ordinary.info().device, kept ? value.scalar_type() : ordinary.info().dtype);
  }
  auto made = std::make_unique<TransformerModel>(config, std::move(parameters));
  made->set_name(ordinary.info().name);
  return made;
}

std::optional<CompanionRecord> read_companion(const CompanionRole& role, const nlohmann::json& config_json,
                                              const std::string& where) {
  const auto object = config_json.find(role.key);
  if (object == config_json.end() || !object->is_object() || !object->contains(role.role)) return std::nullopt;
  const std::string at = fmt::format("{}: {}: {}", where, role.key, role.role);
  Problems problems;
  JsonReader reader(object->at(role.role), at, problems);
  CompanionRecord record{reader.get_string("path"), reader.get_string("sha256")};
  if (problems.empty() && (!is_sha256(record.hash) || record.path.empty())) {
    problems.add({.where = at,
                  .what = "does not name a model",
                  .expected = "a path and a SHA-256 of 64 hexadecimal digits",
                  .found = fmt::format("\"{}\" and \"{}\"", record.path, record.hash.substr(0, 80)),
                  .hint = {}});
  }
  problems.throw_if_any();
  return record;
}

void remove_companion_path(const CompanionRole& role, nlohmann::json& config_json) {
  const auto object = config_json.find(role.key);
  if (object != config_json.end() && object->contains(role.role) && object->at(role.role).is_object()) {
    object->at(role.role).erase("path");
  }
}

std::function<void(nlohmann::ordered_json&)> recording(const CompanionRole& role, CompanionRecord record) {
  return [role, record = std::move(record)](nlohmann::ordered_json& config_json) {
    config_json[role.key][role.role] = {{"path", record.path}, {"sha256", record.hash}};
  };
}

CompanionRecord reference(const fs::path& companion, const fs::path& place) {
  const fs::path from = fs::weakly_canonical(fs::absolute(place));
  return {fs::relative(fs::canonical(companion), from).string(), model_hash(companion)};
}

std::optional<CompanionRecord> recorded_companion(const CompanionRole& role, const fs::path& directory) {
  const fs::path file = directory / "config.json";
  return read_companion(role, load_json(file, {.max_bytes = 16'000'000}), file.string());
}

std::optional<fs::path> find_companion(const CompanionRole& role, const fs::path& directory) {
  if (const auto record = recorded_companion(role, directory)) return resolved(directory / record->path);
  if (const fs::path inside = directory / role.role; fs::is_directory(inside)) return inside;
  return std::nullopt;
}

fs::path companion_of(const CompanionRole& role, const fs::path& directory) {
  if (const auto found = find_companion(role, directory)) return *found;
  throw UserError(
      {.where = directory.string(),
       .what = fmt::format("this {} names no {}", role.reader, role.role),
       .expected = fmt::format("{}: {} in config.json, as finished training writes it", role.key, role.role),
       .hint = fmt::format("name the {} (--model)", role.role)});
}

void require_present(const CompanionRole& role, const fs::path& directory, const fs::path& companion) {
  if (fs::is_directory(companion)) return;
  throw UserError({.where = directory.string(),
                   .what = fmt::format("the {} of this {} is not there", role.role, role.reader),
                   .expected = "a model directory " + companion.string(),
                   .found = "nothing",
                   .hint = fmt::format("name the {} where it lies now (--model){}", role.role, role.remedy)});
}

void require_recorded(const CompanionRole& role, const fs::path& directory, const fs::path& companion) {
  const auto record = recorded_companion(role, directory);
  if (!record) return;
  const fs::path own = directory / record->path;
  std::error_code status;
  if (record->path == role.role && fs::equivalent(own, companion, status)) return;
  if (const std::string hash = model_hash(companion); hash != record->hash) {
    throw UserError({.where = directory.string(),
                     .what = fmt::format("this {} belongs to another {}", role.reader, role.role),
                     .expected = named(resolved(own), record->hash),
                     .found = named(companion, hash),
                     .hint = fmt::format("decode with the {} that it was trained with, or train it anew", role.role)});
  }
}

void require_unchanged(const CompanionRole& role, const fs::path& directory, const fs::path& companion) {
  const auto record = recorded_companion(role, directory);
  if (!record) return;
  if (const std::string hash = model_hash(companion); hash != record->hash) {
    throw UserError({.where = directory.string(),
                     .what = fmt::format("its {} has changed since this {} was written", role.role, role.reader),
                     .expected = fmt::format("{} with sha256 {}", companion.string(), record->hash.substr(0, 16)),
                     .found = "sha256 " + hash.substr(0, 16)});
  }
}

}  // namespace draftsmith::model
