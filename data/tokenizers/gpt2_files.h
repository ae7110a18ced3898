// Reads GPT-2's form of a byte-level tokenizer (Radford et al. 2019): vocab.json and merges.txt, and, if present,
// tokenizer_config.json, special_tokens_map.json and added_tokens.json. Ids equal Transformers' GPT2Tokenizer's.
#pragma once

#include <filesystem>
#include <memory>

#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

struct BpeParts;  // data/tokenizers/bpe_tokenizer.h

// Returns what the files say, of which load_gpt2_files() makes a tokenizer. Errors: as load_gpt2_files().
BpeParts read_gpt2_files(const std::filesystem::path& vocabulary, const std::filesystem::path& merges);

// Errors: UserError for missing or malformed files.
std::unique_ptr<Tokenizer> load_gpt2_files(const std::filesystem::path& vocabulary,
                                           const std::filesystem::path& merges);

}  // namespace draftsmith::data
