#include "recipes/export/hub_names.h"

#include <algorithm>
#include <cstddef>

namespace draftsmith::recipes {

namespace {

constexpr size_t kLongestRepository = 96;

bool is_letter(char c) {
  return c >= 'a' && c <= 'z';
}

bool is_alphanumeric(char c) {
  return is_letter(c) || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_part(std::string_view part) {
  const auto ends_well = [](char c) { return c != '-' && c != '.'; };
  return !part.empty() && ends_well(part.front()) && ends_well(part.back()) &&
         part.find("--") == std::string_view::npos && part.find("..") == std::string_view::npos &&
         std::all_of(part.begin(), part.end(), is_hub_letter);
}

}  // namespace

bool is_hub_letter(char c) {
  return is_alphanumeric(c) || c == '-' || c == '_' || c == '.';
}

bool is_hub_license(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '+';
  });
}

bool is_hub_language(std::string_view text) {
  return text == "code" || text == "multilingual" ||
         ((text.size() == 2 || text.size() == 3) && std::all_of(text.begin(), text.end(), is_letter));
}

bool is_hub_repository(std::string_view text) {
  const size_t slash = text.find('/');
  const bool parts_fit = slash == std::string_view::npos
                             ? is_part(text)
                             : is_part(text.substr(0, slash)) && is_part(text.substr(slash + 1));
  return parts_fit && text.size() <= kLongestRepository && !text.ends_with(".git");
}

}  // namespace draftsmith::recipes
