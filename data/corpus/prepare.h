// Makes a tokenised corpus of text, for `draftsmith data prepare` and the recipes' stage `corpus`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "data/corpus/corpus.h"
#include "data/corpus/prepare_options.h"
#include "data/text/readers.h"
#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

// Receives the number of examples processed since the last call.
using ProgressCallback = std::function<void(int64_t)>;

// Tokenises the stream and writes the corpus in the stream's order, in bounded memory, for any number of threads.
// Targets and sources end in EOS, with three exceptions. Prompts have no EOS, because the target continues them; they
// begin with BOS if the tokenizer's frame has one. Sources of plain text are empty. Of a text that is split into
// windows, only the last window ends in EOS. Errors: UserError for text that the
// policies do not allow and for a tokenizer without EOS; no file is left then.
PrepareReport prepare_corpus(ExampleStream& stream, const Tokenizer& tokenizer, const PrepareOptions& options,
                             const std::filesystem::path& out, const ProgressCallback& progress = {});

}  // namespace draftsmith::data
