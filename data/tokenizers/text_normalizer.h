// The normalizers of tokenizer.json that the families use: NFC (GPT-NeoX), Prepend and Replace (Llama's SentencePiece),
// and sequences of these.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace draftsmith::data {

class TextNormalizer {
 public:
  // Adds canonical composition by the Unicode version of `tokenizers`. Characters of later versions do not change, and
  // characters beside them do not combine with them.
  void add_nfc() { steps_.push_back({Kind::kNfc, {}, {}}); }
  // Adds `text` before every text that is not empty.
  void add_prepend(std::string text) { steps_.push_back({Kind::kPrepend, {}, std::move(text)}); }
  // Adds the replacement of each occurrence of `what`, which must not be empty.
  void add_replace(std::string what, std::string by) {
    steps_.push_back({Kind::kReplace, std::move(what), std::move(by)});
  }

  bool empty() const { return steps_.empty(); }
  // Returns the normalised text; the text must be valid UTF-8.
  std::string operator()(std::string_view text) const;

 private:
  enum class Kind { kNfc, kPrepend, kReplace };
  struct Step {
    Kind kind;
    std::string what;
    std::string text;
  };
  std::vector<Step> steps_;
};

// Returns the text after the step of TextNormalizer::add_nfc.
std::string nfc(std::string_view text);

// Returns the text with each occurrence of `what` replaced, from left to right; `what` must not be empty.
std::string replace_all(std::string_view text, std::string_view what, std::string_view by);

}  // namespace draftsmith::data
