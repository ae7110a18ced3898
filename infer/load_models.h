// The models of a generator, and what is read for them: model directories, each with its tokenizer, its generation
// settings and its exits, texts and lines of files, and prompts of inputs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/registry.h"
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
struct DecodeOptions;    // infer/decode_options.h

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
  // Returns `generation`, or what the target's info() says of it.
  model::GenerationConfig settings() const;
};

// A model and its generation settings, with its directory and the tokenizer there.
struct LoadedModel : model::LoadedLanguageModel {
  std::filesystem::path directory;
  std::unique_ptr<data::Tokenizer> tokenizer;  // null: the directory has none, and the model reads ids alone

  // Returns the models of a generator whose target this is, without a drafter.
  GenerationModels alone() const {
    return {.target = model.get(), .generation = generation, .target_tokenizer = tokenizer.get()};
  }
};

// Loads a directory of a model that decodes alone. A target language forces the first token. Errors: UserError, those
// of load_language_model() and load_tokenizer(), languages without a tokenizer, and one with more ids than the model.
LoadedModel load_model_directory(const std::filesystem::path& directory, const model::LoadOptions& options,
                                 const data::Languages& languages = {});

// Makes the token of the tokenizer's target language, if it stands before outputs alone, the first one that is written.
void force_target_language(const data::Tokenizer& tokenizer, model::GenerationConfig& settings);

// Returns the tokenizer, with which the model reads text. Errors: UserError with the hint if it has none.
const data::Tokenizer& tokenizer_of(const LoadedModel& loaded, std::string_view hint);

// Returns the ids of a text as a source, with EOS and the token before it (BART's BOS, a language), or as a prompt,
// with BOS if the tokenizer's settings ask for it.
std::vector<int64_t> source_ids(const std::string& text, const data::Tokenizer& tokenizer,
                                const model::ModelInfo& info);

// Reads the token ids of every line of `file` ("-" is standard input). If `ids`, lines are ids separated by blanks,
// which are taken as they are. Otherwise lines are text, read by source_ids(); if `chat`, a user's messages, read in
// the model's chat template. Empty lines are valid. Errors: a UserError with file:line for invalid UTF-8, words that
// are not ids, and ids outside the vocabulary; those of data::ChatTemplate.
std::vector<std::vector<int64_t>> read_source_lines(const std::string& file, const LoadedModel& loaded, bool ids,
                                                    bool chat = false);

// Loads exits of the model in `directory`, which was loaded as `model`: those in the directory `given` or, where that
// is empty, those inside its own, nullptr if there are none. Models that are no transformers have none. Errors:
// UserError, those of model::load_exits().
std::unique_ptr<model::Exits> find_exits(const std::filesystem::path& directory, const model::LanguageModel& model,
                                         const std::filesystem::path& given);

// Returns names, sizes and times of a directory's files, or of a file: cheap to read, and different for another model.
std::string fingerprint_of(const std::filesystem::path& path);

// Prompts of decoder-only models that are too long, and how many new tokens have room.

// Treatment of a prompt that leaves no room: it
enum class LongPrompts {
  kError,         // is an error that names the remedy
  kTruncateLeft,  // drops the prompt's beginning so that the wanted tokens fit behind it
  kSkip,          // gives empty results
};

// Returns their names in options.
const NamedValues<LongPrompts>& long_prompt_policies();

struct Context {
  int64_t tokens = 0;  // prompt and new tokens together; 0: no limit
  std::string owner;   // the limit's owner, for messages: "the model X"
  std::string lift{};  // the option that lifts the limit, for messages; empty: none does
};

struct PromptFit {
  int64_t dropped = 0;  // prompt tokens that are left out
  int64_t wanted = 0;   // new tokens asked for
  int64_t room = 0;     // new tokens that fit, at most `wanted`
  bool skipped = false;
};

// Returns how a prompt of `prompt` tokens fits with `wanted` >= 1 new tokens. A prompt that fills the context leaves no
// room. kTruncateLeft shortens the prompt to make room for the wanted tokens, but to no less than half the context;
// then fewer new tokens fit. Errors: UserError at `where` for kError and a prompt that leaves no room.
PromptFit fit_prompt(int64_t prompt, int64_t wanted, const Context& context, LongPrompts policy,
                     const std::string& where);

// Requires a prompt after which the model predicts something (model::tokens_at_once()). Errors: UserError at `where`.
void require_length(const model::LanguageModel& model, int64_t prompt, const std::string& where);

// Maker of prompts from inputs: token ids for an encoder, or the prompt of a decoder-only model.
class Prompts {
 public:
  // `generation` are the model's settings with those of the options in their place. All must outlive this.
  Prompts(const GenerationModels& models, const DecodeOptions& options, const model::GenerationConfig& generation);

  // Returns the prompt without its `dropped` oldest tokens, though a BOS stays; of an encoder-decoder model it is the
  // start token.
  std::vector<int64_t> prompt_of(const std::vector<int64_t>& source, int64_t dropped) const;

  // Returns how the prompt of a source fits the context; an encoder's input fits unless it has more tokens than the
  // model has positions. Messages name the source by `line`, counted from 0. Errors: UserError for an id outside the
  // vocabulary, an empty prompt where the model has no first token, one that is shorter than the first block of block
  // prediction, a prompt too long under long_prompts = error, and an encoder's input too long unless it is `skip`.
  PromptFit fit(const std::vector<int64_t>& source, uint64_t line) const;

 private:
  std::optional<int64_t> max_new_tokens() const;
  int64_t wanted_tokens(int64_t prompt) const;
  PromptFit fit_source(int64_t tokens, uint64_t line) const;

  const GenerationModels& models_;
  const DecodeOptions& options_;
  const model::GenerationConfig& generation_;
  const model::ModelInfo& target_;
  const model::LanguageModel* drafter_;  // nullptr: none, or no model
  Context context_;                      // the target's; a drafter with fewer positions leaves the rest to the target
};

}  // namespace draftsmith::infer
