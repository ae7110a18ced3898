// Reads tokenizer.json, the form in which Hugging Face `tokenizers` stores a tokenizer, where its model is byte pair
// encoding. What encode and decode mean is defined by that library (0.23); truncation and padding are not applied.
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

// Errors: UserError for a file that is missing or malformed, and for components that are not supported: named, with
// those that are.
std::unique_ptr<Tokenizer> load_tokenizer_json(const std::filesystem::path& file);

// Whether a tokenizer.json holds byte pair encoding (and not, say, a T5's Unigram). Errors: UserError for a file that
// is no JSON.
bool is_bpe_json(const std::filesystem::path& file);

// The pieces of a vocabulary object, {"piece": id}. Errors: UserError for ids that are no integers of 32 bits.
std::vector<std::pair<std::string, int32_t>> parse_vocabulary(const nlohmann::json& vocabulary,
                                                              const std::string& where);

// The two pieces of a merge written with one blank between them. Errors: UserError.
std::pair<std::string, std::string> parse_merge(std::string_view line, const std::string& where);

}  // namespace draftsmith::data
