// Makes a tokenised corpus of text, for `draftsmith data prepare` and the recipes' stage `corpus`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/options.h"
#include "data/corpus/corpus.h"
#include "data/text/readers.h"
#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

// How text becomes a corpus.
struct PrepareOptions {
  int64_t max_source = 0;  // tokens, EOS counted; 0: no limit
  int64_t max_target = 0;
  std::string too_long = "error";    // error | drop | truncate (EOS is kept) | split (plain text, into windows)
  std::string references = "first";  // first | all (one example for each)
  std::string prefix{};              // text before each source
  std::string suffix{};              // text after each source, tokenized separately; kept if the source is truncated
  bool prompts = false;              // sources are prompts of a decoder-only model, without EOS
  int64_t prompt_tokens = 0;         // first tokens of plain text that become the prompt; 0: no prompt
  int64_t skip = 0;                  // examples to skip at the beginning
  int64_t limit = 0;                 // maximum examples read after `skip`; 0: all
  int64_t threads = 2;
  static Fields<PrepareOptions> fields();
};

// Counts of what was read, changed and left out.
struct PrepareReport {
  ReadCounts read{};
  int64_t written = 0;
  int64_t source_tokens = 0;
  int64_t target_tokens = 0;
  int64_t dropped_long = 0;
  int64_t dropped_short = 0;  // with prompt_tokens: no token follows the prompt
  int64_t truncated_sources = 0;
  int64_t truncated_targets = 0;
  int64_t split_texts = 0;
  int64_t windows = 0;  // that split texts became
  int64_t unused_references = 0;
  int64_t empty_references = 0;  // skipped because the source has another reference that is not empty
  int64_t unknown_source_tokens = 0;
  int64_t unknown_target_tokens = 0;
  // Returns all counts of text that was changed or left out and are not zero, by name.
  std::vector<std::pair<std::string, int64_t>> nonzero() const;
};

// Tokenises the stream and writes the corpus in the stream's order, in bounded memory, for any number of threads.
// Targets and sources end in EOS, with three exceptions. Prompts have no EOS, because the target continues them; they
// begin with BOS if the tokenizer's frame has one. Sources of plain text are empty. Of a text that is split into
// windows, only the last window ends in EOS. Errors: UserError for text that the
// policies do not allow and for a tokenizer without EOS; no file is left then.
PrepareReport prepare_corpus(ExampleStream& stream, const Tokenizer& tokenizer, const PrepareOptions& options,
                             const std::filesystem::path& out, const ProgressCallback& progress = {});

}  // namespace draftsmith::data
