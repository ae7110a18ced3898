// Normalizers of tokenizer.json that the families use: NFC (GPT-NeoX), Prepend and Replace (Llama's SentencePiece),
// and sequences of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace draftsmith::data {

class TextNormalizer {
 public:
  // Unicode's canonical composition, as of the version of Unicode that `tokenizers` has: later characters stay as
  // they are, with whatever stands beside them.
  void add_nfc() { steps_.push_back({Kind::kNfc, {}, {}}); }
  // Puts `text` before every text that is not empty.
  void add_prepend(std::string text) { steps_.push_back({Kind::kPrepend, {}, std::move(text)}); }
  // Replaces each occurrence of `what` (not empty).
  void add_replace(std::string what, std::string by) {
    steps_.push_back({Kind::kReplace, std::move(what), std::move(by)});
  }

  bool empty() const { return steps_.empty(); }
  // The text must be valid UTF-8.
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

// NFC as above.
std::string nfc(std::string_view text);

// Each occurrence of `what` (not empty) replaced, from left to right.
std::string replace_all(std::string_view text, std::string_view what, std::string_view by);

}  // namespace draftsmith::data
