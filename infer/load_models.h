// Loads model directories for decoding: a model with its tokenizer, which reads texts, its generation settings and its
// exits.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/tokenizer.h"
#include "model/files/checkpoint.h"
#include "model/files/generation_config.h"
#include "model/kinds/exits.h"

namespace draftsmith::infer {

// A model with its directory's tokenizer and generation settings.
struct LoadedModel {
  std::filesystem::path directory;
  std::unique_ptr<model::LanguageModel> model;
  std::unique_ptr<data::Tokenizer> tokenizer;  // null: the directory has none, and the model reads ids alone
  model::GenerationConfig generation;
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

// Loads exits of the model in `directory`, which was loaded as `model`: those in the directory `given` or, where that
// is empty, those inside its own, nullptr if there are none. Models that are no transformers have none. Errors:
// UserError, those of model::load_exits().
std::unique_ptr<model::Exits> find_exits(const std::filesystem::path& directory, const model::LanguageModel& model,
                                         const std::filesystem::path& given);

// Returns names, sizes and times of a directory's files, or of a file: cheap to read, and different for another model.
std::string fingerprint_of(const std::filesystem::path& path);

}  // namespace draftsmith::infer
