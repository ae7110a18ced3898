// Sizes of known models, by name, for benches with random weights.
#pragma once

#include <string>
#include <vector>

#include "model/transformer/transformer_config.h"

namespace draftsmith::bench {

// Returns the configuration of a shape: t5-small, t5-base, t5-large, llama-1b, llama-8b, or one of the tiny
// shapes tiny-t5, tiny-t5-drafter, tiny-llama. Its outputs never end. Throws UserError for other names.
model::TransformerConfig shape_config(const std::string& name);

// Returns the words of a list such as "1,4,16".
std::vector<std::string> split_list(const std::string& text);
std::vector<int64_t> split_numbers(const std::string& text, const std::string& where);

}  // namespace draftsmith::bench
