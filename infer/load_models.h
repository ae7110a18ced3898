// The models of a generator, and the loading of model directories for decoding: a model with its tokenizer, which reads
// texts and lines of files, its generation settings and its exits.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/tokenizer.h"
#include "infer/drafters/drafter.h"
#include "model/files/generation_config.h"
#include "model/files/model_directory.h"
#include "model/models/exits.h"
#include "model/models/language_models.h"

namespace draftsmith::model {
class RouterPredictor;  // model/models/router.h
}

namespace draftsmith::infer {

struct AcceptedLengths;  // infer/windows/window_rules.h

// The models of a generator. They must outlive it; one generator at a time may use them.
struct GenerationModels {
  model::LanguageModel* target = nullptr;
  SharedDrafter drafter = nullptr;                    // needed by methods that draft; early-exit brings its own
  std::optional<model::GenerationConfig> generation;  // the target directory's settings; absent: info().eos alone
  const data::Tokenizer* target_tokenizer = nullptr;  // given: ids above its pieces are padding and never put out
  const model::Exits* exits = nullptr;                // of the target; nullptr: its own final norm and head
  const model::RouterPredictor* router = nullptr;     // needed by the window router
  const AcceptedLengths* accepted_lengths = nullptr;  // needed by the window oracle

  DraftTarget draft_target() const { return {*target, target_tokenizer, exits}; }
};

// A model and its generation settings, with its directory and the tokenizer there.
struct LoadedModel : model::LoadedLanguageModel {
  std::filesystem::path directory;
  std::unique_ptr<data::Tokenizer> tokenizer;  // null: the directory has none, and the model reads ids alone
};

// Loads a directory of a model that decodes alone. Errors: UserError, those of load_language_model() and a tokenizer
// with more ids than the model.
LoadedModel load_model_directory(const std::filesystem::path& directory, const model::LoadOptions& options);

// Returns the tokenizer, with which the model reads text. Errors: UserError with the hint if it has none.
const data::Tokenizer& tokenizer_of(const LoadedModel& loaded, std::string_view hint);

// Returns the ids of a text as a source, with EOS, or as a prompt, with BOS if the tokenizer's settings ask for it.
std::vector<int64_t> source_ids(const std::string& text, const data::Tokenizer& tokenizer,
                                const model::ModelInfo& info);
// Returns the ids of a text as a target, with EOS.
std::vector<int64_t> target_ids(const std::string& text, const data::Tokenizer& tokenizer,
                                const model::ModelInfo& info);

enum class LineKind { kSource, kTarget };

// Reads the token ids of every line of `file` ("-" is standard input). If `ids`, lines are ids separated by blanks,
// which are taken as they are. Otherwise lines are text, read by source_ids() or target_ids(). Empty lines are valid.
// Errors: a UserError with file:line for invalid UTF-8, words that are not ids, and ids outside the vocabulary.
std::vector<std::vector<int64_t>> read_token_lines(const std::string& file, const LoadedModel& loaded, LineKind kind,
                                                   bool ids);

// Loads exits of the model in `directory`, which was loaded as `model`: those in the directory `given` or, where that
// is empty, those inside its own, nullptr if there are none. Models that are no transformers have none. Errors:
// UserError, those of model::load_exits().
std::unique_ptr<model::Exits> find_exits(const std::filesystem::path& directory, const model::LanguageModel& model,
                                         const std::filesystem::path& given);

// Returns names, sizes and times of a directory's files, or of a file: cheap to read, and different for another model.
std::string fingerprint_of(const std::filesystem::path& path);

}  // namespace draftsmith::infer
