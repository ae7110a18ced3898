// Text that a user names by files and fields, and the tokenised corpus that is made of it, for the stage `corpus`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/options.h"
#include "data/corpus/corpus.h"
#include "data/text/readers.h"
#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

// The raw text that a user names, by files and fields: exactly one of parallel files, a jsonl file and plain text.
struct TextInput {
  std::string dataset{};           // name in the data folder, which gives the rest
  std::string direction{};         // of a data set of parallel text, "de-en"
  std::filesystem::path source{};  // parallel text
  std::filesystem::path target{};
  std::filesystem::path jsonl{};  // with named fields
  std::string source_field = "source";
  std::vector<std::string> target_fields = {"target"};
  std::string messages{};                 // field with a conversation, in place of source and targets
  std::filesystem::path chat_template{};  // a model directory, or a file in it
  std::filesystem::path text{};           // plain text: targets without sources
  std::string separator{};                // line that separates documents of plain text; empty: each line is a document
  static Fields<TextInput> fields();
};

// Returns the input with the chat template of its tokenizer (a file or a model directory), if it has conversations and
// no template yet.
TextInput with_template_of(const std::filesystem::path& tokenizer, TextInput input);

// Adds a problem if the input names no kind or several, or half of a parallel pair.
void check_text(const TextInput& input, const std::string& where, Problems& problems);

// Opens the input. `prompts`: conversations without their answers, for a model to answer. Errors: UserError, those of
// check_text() and of a pipe.
std::unique_ptr<ExampleStream> open_text(const TextInput& input, const TextPolicies& policies, bool prompts = false);

// How text becomes a corpus.
struct PrepareOptions {
  int64_t max_source = 0;  // tokens, EOS counted; 0: no limit
  int64_t max_target = 0;
  std::string too_long = "error";  // error | drop | truncate (EOS is kept) | split (plain text, into windows)
  std::string prefix{};            // text before each source
  std::string suffix{};            // text after each source, tokenized separately; kept if the source is truncated
  bool prompts = false;            // sources are prompts of a decoder-only model, without EOS
  int64_t prompt_tokens = 0;       // first tokens of plain text that become the prompt; 0: no prompt
  int64_t skip = 0;                // examples to skip at the beginning
  int64_t limit = 0;               // maximum examples read after `skip`; 0: all
  int64_t threads = 2;
  static Fields<PrepareOptions> fields();
};

struct PrepareReport {
  int64_t written = 0;  // examples
  int64_t source_tokens = 0;
  int64_t target_tokens = 0;
  TextCounts counts{};
};

// Tokenises the stream and writes the corpus in the stream's order, in bounded memory, for any number of threads.
// Targets and sources end in EOS, with three exceptions. Prompts have no EOS, because the target continues them; they
// begin with BOS if the tokenizer's frame has one. Sources of plain text are empty. Of a text that is split into
// windows, only the last window ends in EOS. Errors: UserError for text that the
// policies do not allow and for a tokenizer without EOS; no file is left then.
PrepareReport prepare_corpus(ExampleStream& stream, const Tokenizer& tokenizer, const PrepareOptions& options,
                             const std::filesystem::path& out, const ProgressCallback& progress = {});

}  // namespace draftsmith::data
