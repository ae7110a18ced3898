// From text to a tokenised corpus: `draftsmith data prepare` and the recipes' corpus stage.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/options.h"
#include "data/corpus/corpus.h"
#include "data/text/readers.h"
#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

// Where the text comes from: exactly one of parallel files, a jsonl file and plain text.
struct TextInput {
  std::filesystem::path source{};  // parallel text
  std::filesystem::path target{};
  std::filesystem::path jsonl{};  // with named fields
  std::string source_field = "source";
  std::vector<std::string> target_fields = {"target"};
  std::string join = " ";        // between the elements of fields that are lists of strings
  std::filesystem::path text{};  // plain text: no source side
  std::string separator{};       // line between documents of plain text; empty: every line is one
  static Fields<TextInput> fields();
};

// Errors: UserError when the input names none or several of the kinds, half of a parallel pair, or a pipe.
std::unique_ptr<ExampleStream> open_text(const TextInput& input, const TextPolicies& policies);

struct PrepareOptions {
  int64_t max_source = 0;  // tokens, EOS counted; 0: no limit
  int64_t max_target = 0;
  std::string too_long = "error";    // error | drop | truncate (EOS is kept)
  std::string references = "first";  // first | all (an example for each)
  std::string prefix{};              // put before each source
  std::string suffix{};              // and after it, tokenized by itself; what is too long is cut before it
  bool prompts = false;              // sources are prompts of a decoder-only model: without EOS
  int64_t prompt_tokens = 0;         // the first tokens of plain text become the prompt of what follows; 0: none
  int64_t skip = 0;                  // examples left out at the beginning
  int64_t limit = 0;                 // examples read after them; 0: all
  int64_t threads = 2;
  static Fields<PrepareOptions> fields();
};

struct PrepareReport {
  ReadCounts read{};
  int64_t written = 0;
  int64_t source_tokens = 0;
  int64_t target_tokens = 0;
  int64_t dropped_long = 0;
  int64_t dropped_short = 0;  // with prompt_tokens: nothing follows the prompt
  int64_t truncated_sources = 0;
  int64_t truncated_targets = 0;
  int64_t unused_references = 0;
  int64_t empty_references = 0;  // passed over, since another reference of the source is not empty
  int64_t unknown_source_tokens = 0;
  int64_t unknown_target_tokens = 0;
  // Everything that was not plainly written, by name: what a user must be told.
  std::vector<std::pair<std::string, int64_t>> nonzero() const;
};

// Called with the number of further examples done.
using ProgressCallback = std::function<void(int64_t)>;

// Tokenises the stream and writes the corpus, in the stream's order whatever the number of threads, in bounded memory.
// Every row ends in EOS, but for prompts, which the target continues (they begin with BOS where the tokenizer says so),
// and the sources of plain text, which are empty. Errors: UserError for text the policies do not allow and for a
// tokenizer without EOS; nothing is left behind then.
PrepareReport prepare_corpus(ExampleStream& stream, const Tokenizer& tokenizer, const PrepareOptions& options,
                             const std::filesystem::path& out, const ProgressCallback& progress = {});

}  // namespace draftsmith::data
