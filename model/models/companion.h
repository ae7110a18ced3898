// The companion of a model of our own kinds: another model, whose states it reads. A Tandem secondary's companion is
// its primary (model/models/tandem.h), that of a drafter without an encoder is the target whose encoder it shares
// (model/models/shared_encoder.h). config.json names the companion by its path and hash:
//   "KEY": {..., "ROLE": {"path", "sha256"}}
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"
#include "model/transformer/parameters.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

// How a kind names its companion.
struct CompanionRole {
  const char* key;     // of the kind's object in config.json
  const char* role;    // "primary": of the record in that object, in messages, and of a companion's folder inside
  const char* reader;  // "Tandem secondary": the kind's models in messages
  const char* remedy;  // for one that is gone, after "name the primary where it lies now (--model)"
};

// The companion that a config.json names.
struct CompanionRecord {
  std::string path;  // relative to the directory; equal to the role: it lies inside
  std::string hash;  // model_hash()
};

// Two models as messages name them.
struct PairNames {
  std::string own;
  std::string companion;
};

// ---- Pairs

// Adds a problem where `what` of a model is another than its companion's.
void require_same(const CompanionRole& role, const PairNames& names, const char* what,
                  const std::pair<std::string, std::string>& own_and_companion, Problems& problems);
// Adds a problem for each: models of different kinds (encoder-decoder or not), other ids that end a text, another start
// id, a companion that lacks the padding id. Vocabularies may have different sizes, as the models of one tokenizer that
// are padded differently have (Pythia: 50,304 and 50,432 ids): whoever has tokenizers compares them.
void check_pair(const CompanionRole& role, const TransformerConfig& own, const TransformerConfig& companion,
                const PairNames& names, Problems& problems);

// Start of a model's projections of its companion's states.
struct ProjectionOptions {
  ProjectionStart start = ProjectionStart::kRandom;
  uint64_t seed = 1;  // of random projections
};
// Makes a model of `config` from an ordinary one (loaded unpacked), which gives all parameters that both have. The
// others must be projections.
std::unique_ptr<TransformerModel> with_projections(const TransformerConfig& config, const TransformerModel& ordinary,
                                                   const ProjectionOptions& projections);

// ---- The record in config.json

// Returns the record, if there is one. Errors: UserError at `where`, the file, for a malformed one.
std::optional<CompanionRecord> read_companion(const CompanionRole& role, const nlohmann::json& config_json,
                                              const std::string& where);
// Removes the companion's path and keeps its hash: the directory may be moved, or the companion copied into it.
void remove_companion_path(const CompanionRole& role, nlohmann::json& config_json);
// Returns a function that adds the record to a config.json which has the rest (SaveOptions::add_to_config).
std::function<void(nlohmann::ordered_json&)> recording(const CompanionRole& role, CompanionRecord record);
// Returns the record of a companion in another directory, for a model that is written to `place`.
CompanionRecord reference(const std::filesystem::path& companion, const std::filesystem::path& place);

// ---- Directories

// Returns the companion that a directory's config.json names. Checkpoints of training name none.
std::optional<CompanionRecord> recorded_companion(const CompanionRole& role, const std::filesystem::path& directory);
// Returns the companion's directory: the recorded path, or the folder inside if none is recorded, as in checkpoints;
// nothing if there is neither.
std::optional<std::filesystem::path> find_companion(const CompanionRole& role, const std::filesystem::path& directory);
// Does as find_companion(). Errors: UserError if there is none.
std::filesystem::path companion_of(const CompanionRole& role, const std::filesystem::path& directory);
// Refuses a directory that is not there. Errors: UserError.
void require_present(const CompanionRole& role, const std::filesystem::path& directory,
                     const std::filesystem::path& companion);
// Refuses another companion than the recorded one by its hash. One inside the directory belongs to it. Errors:
// UserError with both names.
void require_recorded(const CompanionRole& role, const std::filesystem::path& directory,
                      const std::filesystem::path& companion);
// Refuses a companion that changed since it was recorded. Errors: UserError.
void require_unchanged(const CompanionRole& role, const std::filesystem::path& directory,
                       const std::filesystem::path& companion);

}  // namespace draftsmith::model
