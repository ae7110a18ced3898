#include "data/tokenizers/text_pattern.h"

#include <algorithm>

#include "base/error.h"
#include "data/tokenizers/character_classes.h"
#include "data/tokenizers/pattern_compiler.h"

namespace draftsmith::data {

namespace {

// Steps that one match may take: a fixed part, and more for long texts.
constexpr size_t kFixedSteps = 10'000;
constexpr size_t kStepsPerByte = 64;

// A place to go back to. Runs give back one character at a time, down to `low`.
struct Saved {
  size_t pc;
  size_t at;
  size_t low;
};

}  // namespace

void CharacterSet::seal() {
  for (char32_t c = 0; c < 128; ++c) ascii[c] = slow_contains(c);
}

bool CharacterSet::slow_contains(char32_t c) const {
  const uint8_t of = CharacterClasses::table().of(c);
  const bool inside =
      (of & classes) != 0 || (~of & not_classes) != 0 ||
      std::any_of(ranges.begin(), ranges.end(), [&](const auto& r) { return c >= r.first && c <= r.second; }) ||
      std::any_of(nested.begin(), nested.end(), [&](const CharacterSet& set) { return set.contains(c); });
  return inside != negated;
}

TextPattern::TextPattern(std::string_view expression, std::string where)
    : expression_(expression), where_(std::move(where)) {
  program_ = PatternCompiler(expression_, where_).compile();
}

size_t TextPattern::match(std::string_view text, size_t at) const {
  size_t steps = kFixedSteps + kStepsPerByte * (text.size() - at);
  const size_t end = run(text, 0, at, steps);
  return end == kFailed ? at : end;
}

void TextPattern::too_slow() const {
  throw UserError({.where = where_,
                   .what = "the regular expression takes too many steps on a text",
                   .expected = "an expression without nested repetitions of the same characters",
                   .found = expression_});
}

size_t TextPattern::run(std::string_view text, size_t pc, size_t at, size_t& steps) const {
  std::vector<Saved> saved;
  const auto go_back = [&] {
    if (saved.empty()) return false;
    Saved& last = saved.back();
    if (last.at > last.low) last.at = previous_character(text, last.at);
    pc = last.pc;
    at = last.at;
    if (last.at <= last.low) saved.pop_back();
    return true;
  };
  for (;;) {
    if (steps == 0) too_slow();
    --steps;
    const Instruction& now = program_.instructions[pc];
    bool failed = false;
    switch (now.op) {
      case Op::kMatched:
        return at;
      case Op::kJump:
        pc = now.first;
        break;
      case Op::kSplit:
        saved.push_back({now.second, at, at});
        pc = now.first;
        break;
      case Op::kAhead:
        failed = (run(text, pc + 1, at, steps) == kFailed) != now.negated;
        pc = now.first;
        break;
      case Op::kSet: {
        const CodePoint c = at < text.size() ? code_point_at(text, at) : CodePoint{};
        failed = c.length == 0 || !program_.sets[now.set].contains(c.value);
        at += c.length;
        ++pc;
        break;
      }
      case Op::kRun: {
        const CharacterSet& set = program_.sets[now.set];
        size_t low = at;  // the end after the fewest characters
        size_t count = 0;
        while (count < now.max && at < text.size()) {
          const CodePoint c = code_point_at(text, at);
          if (!set.contains(c.value)) break;
          at += c.length;
          if (++count <= now.min) low = at;
        }
        failed = count < now.min;
        ++pc;
        if (!failed && !now.possessive && at > low) saved.push_back({pc, at, low});
        break;
      }
    }
    if (failed && !go_back()) return kFailed;
  }
}

}  // namespace draftsmith::data
