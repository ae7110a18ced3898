// Reads tokenizer.json, the file of Hugging Face `tokenizers`, if its model is byte pair encoding. Encoding and
// decoding equal that library's (0.23), without truncation and padding.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

struct BpeParts;  // data/tokenizers/bpe_tokenizer.h

// Returns what the file says, of which load_tokenizer_json() makes a tokenizer. Errors: as load_tokenizer_json().
BpeParts read_tokenizer_json(const std::filesystem::path& file);

// Errors: UserError for a missing or malformed file, and for an unsupported component, with the list of supported ones.
std::unique_ptr<Tokenizer> load_tokenizer_json(const std::filesystem::path& file);

// Returns whether the model of a tokenizer.json is byte pair encoding (a T5's is Unigram). Errors: UserError for a file
// that is not JSON.
bool is_bpe_json(const std::filesystem::path& file);

// Returns the pieces of a vocabulary, {"piece": id}. Errors: UserError for an id that is not an integer of 32 bits.
std::vector<std::pair<std::string, int32_t>> parse_vocabulary(const nlohmann::json& vocabulary,
                                                              const std::string& where);

// Returns the two pieces of a merge, which one blank separates. Errors: UserError.
std::pair<std::string, std::string> parse_merge(std::string_view line, const std::string& where);

}  // namespace draftsmith::data
