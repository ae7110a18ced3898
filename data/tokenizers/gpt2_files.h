// GPT-2's own form of a byte-level tokenizer (Radford et al. 2019): vocab.json and merges.txt, with
// tokenizer_config.json, special_tokens_map.json and added_tokens.json where they are there. Ids as those of
// Transformers' GPT2Tokenizer.
#pragma once

#include <filesystem>
#include <memory>

#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

// Errors: UserError for files that are missing or malformed.
std::unique_ptr<Tokenizer> load_gpt2_files(const std::filesystem::path& vocabulary,
                                           const std::filesystem::path& merges);

}  // namespace draftsmith::data
