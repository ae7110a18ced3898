#include "data/chat/template_texts.h"

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "data/chat/template_values.h"

namespace draftsmith::data {

namespace {

// Returns whether str.strip() takes the character away: Unicode's white space and four separators of ASCII.
bool is_stripped(char32_t c) {
  return is_white_space(c) || (c >= 0x1C && c <= 0x1F);
}

}  // namespace

std::string stripped_text(const std::string& text, const TemplateValue& set, bool left, bool right) {
  std::vector<std::string> list = characters_of(text);
  const auto goes = [&](const std::string& c) {
    if (!set.is_string()) return is_stripped(code_point_at(c, 0).value);
    const std::vector<std::string> wanted = characters_of(set.get_ref<const std::string&>());
    return std::find(wanted.begin(), wanted.end(), c) != wanted.end();
  };
  auto begin = list.begin();
  auto end = list.end();
  while (left && begin != end && goes(*begin)) ++begin;
  while (right && begin != end && goes(*(end - 1))) --end;
  std::string result;
  for (auto c = begin; c != end; ++c) result += *c;
  return result;
}

std::string replaced_text(const std::string& text, const std::string& old, const std::string& with,
                          const TemplateValue& count) {
  int64_t left = count.is_number_integer() ? count.get<int64_t>() : -1;
  if (old.empty()) throw std::invalid_argument("replace needs a text to replace");
  std::string result;
  size_t begin = 0;
  for (size_t found = text.find(old); found != std::string::npos && left != 0; found = text.find(old, begin)) {
    result += text.substr(begin, found - begin) + with;
    begin = found + old.size();
    --left;
  }
  return result + text.substr(begin);
}

TemplateValue split_text(const std::string& text, const TemplateValue& separator) {
  TemplateValue parts = TemplateValue::array();
  if (!separator.is_string()) {
    std::string word;
    for (const std::string& c : characters_of(text)) {
      if (!is_stripped(code_point_at(c, 0).value)) {
        word += c;
      } else if (!word.empty()) {
        parts.push_back(std::exchange(word, ""));
      }
    }
    if (!word.empty()) parts.push_back(word);
    return parts;
  }
  const std::string& joint = separator.get_ref<const std::string&>();
  if (joint.empty()) throw std::invalid_argument("split needs a separator that is not empty");
  size_t begin = 0;
  for (size_t found = text.find(joint); found != std::string::npos; found = text.find(joint, begin)) {
    parts.push_back(text.substr(begin, found - begin));
    begin = found + joint.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::string with_case(std::string text, bool upper) {
  for (char& c : text) {
    if (upper && c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    if (!upper && c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

std::string capitalized_text(const std::string& text) {
  return text.empty() ? text : with_case(text.substr(0, 1), true) + with_case(text.substr(1), false);
}

std::string titled_text(const std::string& text) {
  std::string result = with_case(text, false);
  for (size_t i = 0; i < result.size(); ++i) {
    const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    if (i == 0 || !letter(result[i - 1])) result.replace(i, 1, with_case(result.substr(i, 1), true));
  }
  return result;
}

}  // namespace draftsmith::data
