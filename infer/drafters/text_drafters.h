// Drafters that read the text alone: `ngram`, from a table of n-gram counts, and `lookup`, prompt look-up.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "data/ngrams/ngram_table.h"
#include "infer/drafters/drafter.h"

namespace draftsmith::infer {

// Makes the drafter `ngram` of a table: it predicts the next token from the last two, with back-off
// (data/ngrams/ngram_table.h). In greedy decoding a draft takes two binary searches. When sampling, logits are the
// table's distribution, so rejection keeps the target's distribution.
SharedDrafter as_drafter(std::shared_ptr<const data::NgramTable> table);

// Makes the drafter of the table in a file. Errors: UserError, those of data::NgramTable.
SharedDrafter load_ngram_drafter(const std::filesystem::path& file);

// Makes the drafter `lookup`, prompt look-up: it finds the last earlier occurrence of the longest suffix of the text so
// far, of up to `longest` >= 1 tokens, in the source or in the generated text, and copies the tokens that followed it
// (methods.md §1). If even the last token is new it proposes nothing. Its q is one-hot. It fits every target.
SharedDrafter lookup_drafter(int64_t longest);

}  // namespace draftsmith::infer
