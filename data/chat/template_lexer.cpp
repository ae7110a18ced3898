#include "data/chat/template_lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "base/utf8.h"

namespace draftsmith::data {

namespace {

constexpr std::string_view kBlanks = " \t\n\r\f\v";

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Reads a template from its beginning to its end.
class TemplateLexer {
 public:
  TemplateLexer(std::string text, const std::string& source) : text_(std::move(text)), source_(source) {}

  std::vector<TemplateSegment> segments() {
    while (at_ < text_.size()) {
      const size_t tag = next_tag();
      add_text(tag);
      if (tag == std::string::npos) break;
      read_tag();
    }
    return std::move(segments_);
  }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& expected, int line) const {
    throw UserError({.where = source_ + ":" + std::to_string(line), .what = what, .expected = expected});
  }

  bool looking_at(std::string_view wanted) const { return text_.compare(at_, wanted.size(), wanted) == 0; }

  void advance(size_t count) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at_ + count), '\n'));
    at_ += count;
  }

  size_t next_tag() const {
    for (size_t i = text_.find('{', at_); i != std::string::npos; i = text_.find('{', i + 1)) {
      if (i + 1 < text_.size() && std::string_view("{%#").find(text_[i + 1]) != std::string_view::npos) return i;
    }
    return std::string::npos;
  }

  // Adds the text before a tag, without the white space that the tag takes away.
  void add_text(size_t tag) {
    std::string text = text_.substr(at_, tag == std::string::npos ? tag : tag - at_);
    const int line = line_;
    advance(text.size());
    if (tag != std::string::npos) {
      const char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
      if (sign == '-') {
        text.erase(text.find_last_not_of(kBlanks) + 1);
      } else if (sign != '+' && text_[tag + 1] != '{') {
        const size_t begin = text.find_last_of('\n') + 1;  // 0 without a newline
        const bool alone = text.find_first_not_of(kBlanks, begin) == std::string::npos;
        if ((begin > 0 || line_begins_) && alone) text.erase(begin);
      }
    }
    if (!text.empty()) segments_.push_back({.kind = TemplateSegment::Kind::kText, .text = text, .line = line});
  }

  void read_tag() {
    const char kind = text_[at_ + 1];
    const int line = line_;
    advance(2);
    if (kind != '{' && at_ < text_.size() && text_[at_] == '+') advance(1);
    if (at_ < text_.size() && text_[at_] == '-') advance(1);
    if (kind == '#') return skip_comment(line);
    TemplateSegment segment{
        .kind = kind == '{' ? TemplateSegment::Kind::kExpression : TemplateSegment::Kind::kStatement, .line = line};
    const std::string end = kind == '{' ? "}}" : "%}";
    std::vector<char> open;
    while (!(open.empty() && at_end_of_tag(end))) {
      if (at_ >= text_.size()) fail("a tag has no end", "'" + end + "'", line);
      if (kBlanks.find(text_[at_]) != std::string_view::npos) {
        advance(1);
        continue;
      }
      segment.tokens.push_back(read_token());
      const std::string& read = segment.tokens.back().text;
      if (segment.tokens.back().kind != TemplateToken::Kind::kOperator) continue;
      if (read == "{" || read == "(" || read == "[") open.push_back(read[0]);
      if ((read == "}" || read == ")" || read == "]") && !open.empty()) open.pop_back();
    }
    end_tag(end, kind != '{');
    segments_.push_back(std::move(segment));
  }

  bool at_end_of_tag(const std::string& end) const {
    return looking_at(end) || looking_at("-" + end) || (end == "%}" && looking_at("+" + end));
  }

  // Passes the end of a tag, and the white space that it takes away.
  void end_tag(const std::string& end, bool trims) {
    const char sign = text_[at_];
    const bool signed_end = sign == '-' || sign == '+';
    advance(end.size() + (signed_end ? 1 : 0));
    line_begins_ = false;
    const size_t before = at_;
    if (signed_end && sign == '-') {
      advance(std::min(text_.find_first_not_of(kBlanks, at_), text_.size()) - at_);
    } else if (!signed_end && trims && at_ < text_.size() && text_[at_] == '\n') {
      advance(1);
    }
    line_begins_ = at_ > before && text_[at_ - 1] == '\n';
  }

  void skip_comment(int line) {
    const size_t end = text_.find("#}", at_);
    if (end == std::string::npos) fail("a comment has no end", "'#}'", line);
    const bool marked = end > at_ && (text_[end - 1] == '-' || text_[end - 1] == '+');
    advance(end - at_ - (marked ? 1 : 0));
    end_tag("#}", true);
  }

  TemplateToken read_token() {
    using Kind = TemplateToken::Kind;
    const char c = text_[at_];
    if (c == '\'' || c == '"') return read_string(c);
    if (is_name_start(c)) {
      const size_t end = end_of([](char d) { return is_name_start(d) || is_digit(d); });
      return take(Kind::kName, end);
    }
    if (is_digit(c)) {
      const size_t end = end_of([](char d) { return is_digit(d) || d == '.'; });
      const bool real = text_.substr(at_, end).find('.') != std::string::npos;
      return take(real ? Kind::kFloat : Kind::kInteger, end);
    }
    constexpr std::array<std::string_view, 6> kDouble{"==", "!=", "<=", ">=", "//", "**"};
    for (const std::string_view wanted : kDouble) {
      if (looking_at(wanted)) return take(Kind::kOperator, 2);
    }
    if (std::string_view("+-*/%~<>=.,:|()[]{}").find(c) != std::string_view::npos) return take(Kind::kOperator, 1);
    fail("an expression has a character that chat templates do not use", "names, texts, numbers and operators", line_);
  }

  template <class Test>
  size_t end_of(const Test& test) const {
    size_t end = at_;
    while (end < text_.size() && test(text_[end])) ++end;
    return end - at_;
  }

  TemplateToken take(TemplateToken::Kind kind, size_t length) {
    TemplateToken token{kind, text_.substr(at_, length), line_};
    advance(length);
    return token;
  }

  TemplateToken read_string(char quote) {
    TemplateToken token{TemplateToken::Kind::kString, "", line_};
    advance(1);
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] != '\\') {
        token.text += text_[at_];
        advance(1);
        continue;
      }
      advance(1);
      if (at_ < text_.size()) read_escape(token.text);
    }
    if (at_ >= text_.size()) fail("a text has no end", std::string(1, quote), token.line);
    advance(1);
    return token;
  }

  // Reads what follows a backslash, as in Python.
  void read_escape(std::string& text) {
    const char c = text_[at_];
    constexpr std::string_view kLetters = "ntrabfv\\'\"";
    constexpr std::string_view kMeanings = "\n\t\r\a\b\f\v\\'\"";
    if (const size_t found = kLetters.find(c); found != std::string_view::npos) {
      text += kMeanings[found];
      return advance(1);
    }
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t value = 0;
    const char* first = text_.data() + at_ + 1;
    if (digits > 0 && at_ + digits < text_.size() &&
        std::from_chars(first, first + digits, value, 16).ptr == first + digits) {
      append_utf8(static_cast<char32_t>(value), text);
      return advance(digits + 1);
    }
    text += '\\';
  }

  std::string text_;
  const std::string& source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_begins_ = true;  // the text read next begins a line
  std::vector<TemplateSegment> segments_;
};

// Returns the text with newlines as Jinja reads them: LF alone, and none at the end of the template.
std::string normalized(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      result += text[i];
    } else {
      result += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    }
  }
  if (result.ends_with('\n')) result.pop_back();
  return result;
}

}  // namespace

std::vector<TemplateSegment> split_template(std::string_view text, const std::string& source) {
  return TemplateLexer(normalized(text), source).segments();
}

}  // namespace draftsmith::data
