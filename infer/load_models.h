// Models and drafters of suites, `generate` and router stages, loaded from their directories and files.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/ngrams/ngram_table.h"
#include "data/tokenizers/tokenizer.h"
#include "infer/drafters/drafter_source.h"
#include "infer/generator.h"
#include "model/files/checkpoint.h"
#include "model/kinds/exits.h"

namespace draftsmith::infer {

// A model with its directory's tokenizer (absent: only ids can be given to it) and generation settings; or, for a
// drafter that is no model, what that is.
struct LoadedModel {
  std::filesystem::path directory;  // or the n-gram table
  std::unique_ptr<data::NgramTable> ngrams;
  int64_t lookup = 0;
  bool tandem = false;                             // `model` is a Tandem secondary
  int64_t exit_layer = 0;                          // layers of the target that draft; 0: none
  std::unique_ptr<model::TransformerModel> model;  // null: the drafter is no model
  std::unique_ptr<data::Tokenizer> tokenizer;
  model::GenerationConfig generation;
};

// Errors: UserError, those of load_model() and a tokenizer with more ids than the model.
LoadedModel load_evaluated(const std::filesystem::path& directory, const model::LoadOptions& options);

// Errors: the same, and a Tandem secondary of another primary than the model in `target`, which is not compared when
// empty.
LoadedModel load_drafter(const DrafterSource& source, const std::filesystem::path& target,
                         const model::LoadOptions& options);

// Exits of the model in `directory`, loaded as `model`: those in the directory `given` or, where that is empty, those
// inside its own, nullptr if there are none. Errors: UserError, those of model::load_exits().
std::unique_ptr<model::Exits> find_exits(const std::filesystem::path& directory, const model::TransformerModel& model,
                                         const std::filesystem::path& given);

// Makes `loaded` the drafter of `models`.
void set_drafter(const LoadedModel& loaded, GenerationModels& models);

// Names, sizes and times of a directory's files, or of a file: cheap to read, different when the model is another one.
std::string fingerprint_of(const std::filesystem::path& directory);

}  // namespace draftsmith::infer
