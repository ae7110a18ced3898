// The kinds of drafters: how users name each one, in `--drafter` and in a suite's [[drafter]], and how it is loaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/options.h"
#include "infer/drafters/drafter.h"

namespace draftsmith::data {
class NgramTable;  // data/ngrams/ngram_table.h
}

namespace draftsmith::model {
struct LoadOptions;  // model/files/model_directory.h
}

namespace draftsmith::infer {

constexpr int64_t kLongestLookup = 4;  // tokens of the longest n-gram of `lookup` without a number
constexpr int64_t kMostLookup = 16;

// Drafter that a user names.
struct DrafterSpec {
  DrafterKind kind = DrafterKind::kModel;
  std::filesystem::path path = {};  // a model's directory or a table's file
  int64_t number = 0;               // lookup: tokens of the longest n-gram; exit: layers, 0: the method's default
};

// Reads "DIR" (a directory's config.json says whether it is a Tandem secondary, a features drafter, or shares the
// target's encoder), "ngram:FILE", "lookup" or "lookup:N" (N from 1 to 16), or "exit:N" (N from 1). Errors: UserError
// for another N and for "ngram:" without a file.
DrafterSpec parse_drafter(const std::string& text);

// Returns help for users on the texts that parse_drafter() reads.
std::string drafter_help();

// Returns the text that parse_drafter() reads as `spec`.
std::string to_text(const DrafterSpec& spec);

// Loads a drafter for the model in the directory `target`; empty: a drafter that reads another model is not
// compared with the model that it reads. Errors: UserError for files that cannot be read, and for a
// drafter that reads another model.
SharedDrafter load_drafter(const DrafterSpec& spec, const std::filesystem::path& target,
                           const model::LoadOptions& options);

// ---- Drafters without a header of their own

// Makes the drafter `early-exit` of the target's first `layers` layers, >= 1 (infer/drafters/early_exit_drafter.cpp).
SharedDrafter exit_drafter(int64_t layers);

// Makes the drafter `ngram` of a table (infer/drafters/text_drafters.cpp): it predicts the next token from the last
// two, with back-off (data/ngrams/ngram_table.h). In greedy decoding a draft takes two binary searches. When sampling,
// logits are the table's distribution, so rejection keeps the target's distribution.
SharedDrafter as_drafter(std::shared_ptr<const data::NgramTable> table);

// Makes the drafter `lookup`, prompt look-up (infer/drafters/text_drafters.cpp): it finds the last earlier occurrence
// of the longest suffix of the text so far, of up to `longest` >= 1 tokens, in the source or in the generated text, and
// copies the tokens that followed it (methods.md §1). If even the last token is new it proposes nothing. Its q is
// one-hot. It fits every target.
SharedDrafter lookup_drafter(int64_t longest);

// Puts prompt look-up before a drafter of the target: a window copies where at least the last `shortest` >= 1 tokens
// stood before, of several places behind the last one with most equal tokens (up to 4), and is the drafter's elsewhere.
// A copied token's q is one-hot. Copies end with the drafter's positions. validate_parts() (infer/generator.h) says
// what fits.
std::unique_ptr<Drafter> with_lookup(std::unique_ptr<Drafter> drafter, int64_t shortest,
                                     const model::ModelInfo& target);

// Makes the drafter `features` (infer/drafters/feature_drafter.cpp) of a features drafter
// (model/models/feature_drafter.h); arguments as in ReadingDrafter. Its model borrows the target's embedding and head:
// making it for another target binds the shared model anew, so it drafts for one target at a time.
SharedDrafter features_drafter(std::shared_ptr<model::TransformerModel> model,
                               const data::Tokenizer* tokenizer = nullptr, std::filesystem::path directory = {});

// A drafter as a suite's [[drafter]] describes it.
struct DrafterOptions {
  std::string name;  // by which settings refer to it
  std::filesystem::path model{};
  std::filesystem::path ngram{};
  bool lookup = false;
  int64_t longest = kLongestLookup;
  std::filesystem::path tandem{};
  std::filesystem::path features{};
  int64_t exit = 0;                                 // layers; 0: none
  std::optional<std::string> dtype = std::nullopt;  // of a model or Tandem secondary; absent: the suite's
  // Returns the drafter that is given; of several the last in the table of kinds.
  DrafterSpec spec() const;
  static Fields<DrafterOptions> fields();
};

}  // namespace draftsmith::infer
