// Forms of names that the Hugging Face Hub takes in a model card.
#pragma once

#include <string_view>

namespace draftsmith::recipes {

// Returns whether names of repositories may hold the character.
bool is_hub_letter(char c);

// Returns whether the text has the form of a license's name: "apache-2.0", "other".
bool is_hub_license(std::string_view text);

// Returns whether the text has the form of a language's code, of two or three letters, or is "code" or "multilingual".
bool is_hub_language(std::string_view text);

// Returns whether the text names a repository as huggingface_hub's validate_repo_id wants it: "name" or "owner/name".
bool is_hub_repository(std::string_view text);

}  // namespace draftsmith::recipes
