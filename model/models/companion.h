// The companion of a model of our own kinds: another model, whose states it reads. A Tandem secondary's companion is
// its primary (model/models/tandem.h), that of a drafter without an encoder is the target whose encoder it shares
// (model/models/shared_encoder.h). config.json names it by its path and hash (model/files/model_directory.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/transformer/parameters.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

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

// Returns the record of a companion in another directory, for a model that is written to `place`.
CompanionRecord reference(const std::filesystem::path& companion, const std::filesystem::path& place);

// Writes a model's directory, atomically, with its companion elsewhere by path and hash. Errors: as save_model.
void save_with_companion(const std::filesystem::path& directory, const TransformerModel& model,
                         const std::filesystem::path& companion, const SaveOptions& options = {});

// Returns the directory of the companion that a model of this kind names: the recorded path, or the folder inside if
// none is recorded, as in checkpoints. Errors: UserError for a directory of another kind, and if there is none.
std::filesystem::path companion_directory(const ModelKind& kind, const std::filesystem::path& directory);

// Loads a model of a kind that reads a companion, for use with the one in `companion`, which may be another directory
// than the recorded one but must be the same model. Empty: the companion is not checked. Errors (UserError): those of
// load_model; another companion than the recorded one (naming both), or none there.
std::unique_ptr<TransformerModel> load_with_companion(const ModelKind& kind, const std::filesystem::path& directory,
                                                      const std::filesystem::path& companion,
                                                      const LoadOptions& options = {});

// Checks everything about a directory of one transformer: its weights, and its companion, if it names one, by its hash.
// Errors: UserError.
void check_transformer_directory(const std::filesystem::path& directory);

}  // namespace draftsmith::model
