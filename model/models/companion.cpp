#include "model/models/companion.h"

#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;

// Resolves a path as the system does: after a link, `..` leads out of the directory that the link points to.
fs::path resolved(const fs::path& path) {
  std::error_code error;
  const fs::path found = fs::weakly_canonical(path, error);
  return error ? path.lexically_normal() : found;
}

std::string named(const fs::path& companion, const std::string& hash) {
  return fmt::format("{} (sha256 {})", companion.string(), hash.substr(0, 16));
}

// Returns the companion's directory: the recorded path, or the folder inside; nothing if there is neither.
std::optional<fs::path> find_companion(const CompanionRole& role, const std::optional<CompanionRecord>& record,
                                       const fs::path& directory) {
  if (record) return resolved(directory / record->path);
  if (const fs::path inside = directory / role.role; fs::is_directory(inside)) return inside;
  return std::nullopt;
}

// Refuses a companion that is not there, or that the model cannot read.
void require_readable(const ModelDirectory& own, const fs::path& companion) {
  const CompanionRole& role = *own.kind().companion;
  if (!fs::is_directory(companion)) {
    throw UserError({.where = own.path().string(),
                     .what = fmt::format("the {} of this {} is not there", role.role, role.reader),
                     .expected = "a model directory " + companion.string(),
                     .found = "nothing",
                     .hint = fmt::format("name the {} where it lies now (--model){}", role.role, role.remedy)});
  }
  role.require_pair(own.config(), ModelDirectory(companion).config(), {own.path().string(), companion.string()});
}

// Refuses another companion than the recorded one by its hash.
void require_recorded(const ModelDirectory& own, const fs::path& companion) {
  const CompanionRole& role = *own.kind().companion;
  if (!own.companion()) return;
  const auto& [path, recorded] = *own.companion();
  if (const std::string hash = model_hash(companion); hash != recorded) {
    throw UserError({.where = own.path().string(),
                     .what = fmt::format("this {} belongs to another {}, or that has changed", role.reader, role.role),
                     .expected = named(resolved(own.path() / path), recorded),
                     .found = named(companion, hash),
                     .hint = fmt::format("decode with the {} that it was trained with, or train it anew", role.role)});
  }
}

// Returns whether the companion lies inside the directory, and so belongs to it.
bool is_inside(const ModelDirectory& own, const fs::path& companion) {
  const std::string& role = own.kind().companion->role;
  std::error_code status;
  return own.companion() && own.companion()->path == role && fs::equivalent(own.path() / role, companion, status);
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
  const auto kind = [](const TransformerConfig& c) { return c.encoder_decoder ? "encoder-decoder" : "decoder-only"; };
  same("the kind of model", kind(own), kind(companion));
  // Vocabularies may differ by ids that pad them; where there are tokenizers, those are compared. Both models read the
  // own model's padding.
  if (own.pad >= companion.vocabulary) {
    problems.add({.where = names.own,
                  .what = fmt::format("its {} {} lacks the padding token", role.role, names.companion),
                  .expected = fmt::format("more than {} ids", own.pad),
                  .found = std::to_string(companion.vocabulary)});
  }
  const auto ends = [](const TransformerConfig& c) {
    return fmt::format("{}", fmt::join(std::set(c.eos.begin(), c.eos.end()), ", "));
  };
  same("the ids that end a text", ends(own), ends(companion));
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

CompanionRecord reference(const fs::path& companion, const fs::path& place) {
  const fs::path from = fs::weakly_canonical(fs::absolute(place));
  return {fs::relative(fs::canonical(companion), from).string(), model_hash(companion)};
}

void save_with_companion(const fs::path& directory, const TransformerModel& model, const fs::path& companion,
                         const SaveOptions& options) {
  const fs::path place = require_free_place(directory);
  write_new_directory(place, [&](const fs::path& temporary) {
    SaveOptions files = options;
    files.companion = reference(companion, place);
    write_model_files(temporary, model, files);
  });
}

fs::path companion_directory(const ModelKind& kind, const fs::path& directory) {
  const CompanionRole& role = *kind.companion;
  if (const auto found = find_companion(role, read_settings(directory, &kind).companion, directory)) return *found;
  throw UserError(
      {.where = directory.string(),
       .what = fmt::format("this {} names no {}", role.reader, role.role),
       .expected = fmt::format("{}: {} in config.json, as finished training writes it", role.key, role.role),
       .hint = fmt::format("name the {} (--model)", role.role)});
}

std::unique_ptr<TransformerModel> load_with_companion(const ModelKind& kind, const fs::path& directory,
                                                      const fs::path& companion, const LoadOptions& options) {
  const ModelDirectory own(directory, kind);
  if (!companion.empty()) {
    require_readable(own, companion);
    if (!is_inside(own, companion)) require_recorded(own, companion);
  }
  return load_model(own, options);
}

void check_transformer_directory(const fs::path& directory) {
  const ModelDirectory own(directory, kind_of_directory(directory));
  const CompanionRole* role = own.kind().companion;
  const auto companion = role == nullptr ? std::nullopt : find_companion(*role, own.companion(), directory);
  if (!companion) return;
  require_readable(own, *companion);
  require_recorded(own, *companion);
}

}  // namespace draftsmith::model
