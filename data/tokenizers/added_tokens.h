// Added tokens: texts that are one id wherever they stand, found before anything else is done to a text. Those marked
// `normalized` are found after normalisation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace draftsmith::data {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and after it
  bool normalized = false;   // compared after normalisation
  bool special = false;      // prints nothing
};

// A part of a text: one added token, or text between them.
struct TextSegment {
  size_t begin = 0;
  size_t end = 0;
  int32_t id = -1;  // -1: text
};

// Finds the leftmost, longest of a set of added tokens.
class AddedTokenFinder {
 public:
  // `pattern` is what to look for: the token's content, normalised where the token says so. Empty ones are ignored;
  // of equal ones the first counts.
  void add(const std::string& pattern, const AddedToken& token);
  bool empty() const { return tokens_.empty(); }
  // The whole text in order; `segments` is cleared first.
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
