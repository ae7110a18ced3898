#include "data/tokenizers/pre_tokenizer.h"

#include <algorithm>

#include "base/utf8.h"
#include "data/tokenizers/character_classes.h"

namespace draftsmith::data {

namespace {

// Digits follows Unicode 17 (Rust's char::is_numeric), which has more numbers than CharacterClasses.
bool is_digit(char32_t c) {
  return CharacterClasses::table().of(c) == kNumber || (c >= 0x11DE0 && c <= 0x11DE9) || (c >= 0x16FF4 && c <= 0x16FF6);
}

void add_match(TextMatch match, size_t& gap, std::vector<TextPart>& parts) {
  if (gap < match.begin) parts.push_back({gap, match.begin, false});
  parts.push_back({match.begin, match.end, true});
  gap = match.end;
}

// Merges each match with the part before it.
void merge_with_previous(std::vector<TextPart>& parts) {
  std::vector<TextPart> merged;
  bool after_match = false;
  for (const TextPart& part : parts) {
    if (part.matched && !after_match && !merged.empty()) {
      merged.back().end = part.end;
    } else {
      merged.push_back({part.begin, part.end, false});
    }
    after_match = part.matched;
  }
  parts = std::move(merged);
}

void merge_with_next(std::vector<TextPart>& parts) {
  std::vector<TextPart> merged;
  bool before_match = false;
  for (size_t i = parts.size(); i-- > 0;) {
    const TextPart& part = parts[i];
    if (part.matched && !before_match && !merged.empty()) {
      merged.back().begin = part.begin;
    } else {
      merged.push_back({part.begin, part.end, false});
    }
    before_match = part.matched;
  }
  std::reverse(merged.begin(), merged.end());
  parts = std::move(merged);
}

void merge_equal(std::vector<TextPart>& parts) {
  std::vector<TextPart> merged;
  for (const TextPart& part : parts) {
    if (!merged.empty() && merged.back().matched == part.matched) {
      merged.back().end = part.end;
    } else {
      merged.push_back(part);
    }
  }
  parts = std::move(merged);
}

void arrange(std::vector<TextPart>& parts, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
      break;
    case SplitBehavior::kRemoved:
      std::erase_if(parts, [](const TextPart& part) { return part.matched; });
      break;
    case SplitBehavior::kMergedWithPrevious:
      merge_with_previous(parts);
      break;
    case SplitBehavior::kMergedWithNext:
      merge_with_next(parts);
      break;
    case SplitBehavior::kContiguous:
      merge_equal(parts);
      break;
  }
}

class Split : public PreTokenizerStep {
 public:
  Split(SplitPattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void apply(Words& words, bool) const override {
    std::vector<std::string_view> cut;
    std::vector<TextPart> parts;
    for (const std::string_view word : words.views) {
      pattern_.cut(word, parts);
      for (TextPart& part : parts) part.matched = part.matched != invert_;
      arrange(parts, behavior_);
      for (const TextPart& part : parts) {
        if (part.begin < part.end) cut.push_back(word.substr(part.begin, part.end - part.begin));
      }
    }
    words.views = std::move(cut);
  }

 private:
  SplitPattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class PrefixSpace : public PreTokenizerStep {
 public:
  void apply(Words& words, bool) const override {
    for (std::string_view& word : words.views) {
      if (word.starts_with(' ')) continue;
      std::string& prefixed = words.storage.emplace_back(1, ' ');
      prefixed += word;
      word = prefixed;
    }
  }
};

class Metaspace : public PreTokenizerStep {
 public:
  Metaspace(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)),
        scheme_(scheme),
        split_(split),
        cut_(SplitPattern::literal(replacement_), SplitBehavior::kMergedWithNext, false) {}

  void apply(Words& words, bool at_start) const override {
    for (size_t i = 0; i < words.views.size(); ++i) {
      std::string& changed = words.storage.emplace_back();
      for (const char c : words.views[i]) {
        if (c == ' ') {
          changed += replacement_;
        } else {
          changed += c;
        }
      }
      const bool wanted = scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && at_start && i == 0);
      if (wanted && !changed.starts_with(replacement_)) changed.insert(0, replacement_);
      words.views[i] = changed;
    }
    if (split_) cut_.apply(words, at_start);
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
  bool split_;
  Split cut_;
};

}  // namespace

SplitPattern SplitPattern::regex(std::string_view expression, const std::string& where) {
  const PatternScanner scanner = known_scanner(expression);
  if (scanner == nullptr) return general_regex(expression, where);
  SplitPattern pattern;
  pattern.scanner_ = scanner;
  return pattern;
}

SplitPattern SplitPattern::general_regex(std::string_view expression, const std::string& where) {
  SplitPattern pattern;
  pattern.pattern_ = std::make_shared<const TextPattern>(expression, where);
  return pattern;
}

SplitPattern SplitPattern::literal(std::string text) {
  SplitPattern pattern;
  pattern.literal_ = std::move(text);
  return pattern;
}

SplitPattern SplitPattern::digits() {
  return {};  // neither expression nor text
}

void SplitPattern::cut(std::string_view text, std::vector<TextPart>& parts) const {
  parts.clear();
  size_t gap = 0;
  if (pattern_) {
    for (const TextMatch match : pattern_->matches(text)) add_match(match, gap, parts);
  } else {
    for (size_t at = 0; at < text.size();) {
      const size_t end = match(text, at);
      if (end > at) add_match({at, end}, gap, parts);
      at = end > at ? end : at + code_point_at(text, at).length;
    }
  }
  if (gap < text.size()) parts.push_back({gap, text.size(), false});
}

size_t SplitPattern::match(std::string_view text, size_t at) const {
  if (scanner_ != nullptr) return scanner_(text, at);
  if (!literal_.empty()) return text.substr(at).starts_with(literal_) ? at + literal_.size() : at;
  const CodePoint c = code_point_at(text, at);
  return is_digit(c.value) ? at + c.length : at;
}

std::unique_ptr<PreTokenizerStep> make_split(SplitPattern pattern, SplitBehavior behavior, bool invert) {
  return std::make_unique<Split>(std::move(pattern), behavior, invert);
}

std::unique_ptr<PreTokenizerStep> make_prefix_space() {
  return std::make_unique<PrefixSpace>();
}

std::unique_ptr<PreTokenizerStep> make_metaspace(std::string replacement, PrependScheme scheme, bool split) {
  return std::make_unique<Metaspace>(std::move(replacement), scheme, split);
}

void PreTokenizer::split(std::string_view text, bool at_start, Words& words) const {
  words.views.clear();
  words.storage.clear();
  if (text.empty()) return;
  words.views.push_back(text);
  for (const auto& step : steps_) step->apply(words, at_start);
}

}  // namespace draftsmith::data
