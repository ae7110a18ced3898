// Added tokens: texts that have one id of their own. They are found before a text is normalised and cut into words;
// tokens with the flag `normalized` are found after normalisation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace draftsmith::data {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool single_word = false;  // matches only without adjacent word characters
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // includes the white space after it
  bool normalized = false;   // matched after normalisation
  bool special = false;      // decodes to no text
};

// A part of a text: one added token, or text between added tokens.
struct TextSegment {
  size_t begin = 0;
  size_t end = 0;
  int32_t id = -1;  // -1: text
};

// Finds the leftmost and longest of a set of added tokens.
class AddedTokenFinder {
 public:
  // Adds a token under the text `pattern`: its content, normalised if the token has that flag. Ignores an empty pattern
  // and one that was added before.
  void add(const std::string& pattern, const AddedToken& token);
  bool empty() const { return tokens_.empty(); }
  // Replaces `segments` by all segments of the text, in order.
  void split(std::string_view text, std::vector<TextSegment>& segments) const;

 private:
  struct Node {
    int32_t child = -1;  // first of a list linked by `sibling`
    int32_t sibling = -1;
    int32_t token = -1;  // index of the token that ends here
    uint8_t byte = 0;
  };
  struct Match {
    size_t end = 0;
    int32_t token = -1;
  };

  int32_t child(int32_t node, uint8_t byte) const;
  Match longest(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<bool> first_bytes_ = std::vector<bool>(256, false);
};

}  // namespace draftsmith::data
