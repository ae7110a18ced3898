#include "data/tokenizers/pattern_compiler.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "base/error.h"
#include "data/tokenizers/character_classes.h"

namespace draftsmith::data {

namespace {

constexpr size_t kMaxExpression = 4096;
constexpr size_t kMaxProgram = 10'000;
constexpr size_t kMaxDepth = 32;
constexpr size_t kMaxCount = 1000;
constexpr size_t kUnbounded = std::numeric_limits<size_t>::max();

bool is_ascii_letter(char32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

}  // namespace

void PatternCompiler::fail(const std::string& what) const {
  throw UserError({.where = where_,
                   .what = fmt::format("unusable regular expression: {} (at byte {})", what, at_),
                   .expected = "groups, alternatives, classes, \\p{L}, \\p{N}, \\s, lookahead, ? * + {m,n}",
                   .found = std::string(text_.substr(0, 200))});
}

bool PatternCompiler::take(std::string_view what) {
  if (!sees(what)) return false;
  at_ += what.size();
  return true;
}

char32_t PatternCompiler::next() {
  if (at_end()) fail("it ends too soon");
  const CodePoint c = code_point_at(text_, at_);
  at_ += c.length;
  return c.value;
}

void PatternCompiler::append(Part& to, const Part& part) const {
  const size_t base = to.program.size();
  if (base + part.program.size() > kMaxProgram) fail("it is too large");
  for (Instruction instruction : part.program) {
    instruction.first += base;
    instruction.second += base;
    to.program.push_back(instruction);
  }
}

PatternProgram PatternCompiler::compile() {
  if (text_.size() > kMaxExpression) fail("it is longer than 4,096 bytes");
  Part whole = alternatives();
  if (!at_end()) fail("a ')' without its '('");
  if (whole.shortest == 0) fail("it matches the empty text");
  whole.program.push_back({.op = Op::kMatched});
  return {.sets = std::move(sets_), .instructions = std::move(whole.program)};
}

PatternCompiler::Part PatternCompiler::alternatives() {
  Part part = sequence();
  while (take("|")) {
    const Part other = sequence();
    Part both;
    both.program.push_back({.op = Op::kSplit, .first = 1, .second = part.program.size() + 2});
    append(both, part);
    both.program.push_back({.op = Op::kJump, .first = part.program.size() + 2 + other.program.size()});
    append(both, other);
    both.shortest = std::min(part.shortest, other.shortest);
    part = std::move(both);
  }
  return part;
}

PatternCompiler::Part PatternCompiler::sequence() {
  Part all;
  while (!at_end() && !sees("|") && !sees(")")) {
    Part one = atom();
    one = repeated(std::move(one), quantifier());
    append(all, one);
    all.shortest += one.shortest;
  }
  return all;
}

PatternCompiler::Part PatternCompiler::atom() {
  if (take("(")) return group();
  if (take("[")) return one_of(bracket_class());
  if (take("\\")) {
    CharacterSet set;
    char32_t character = 0;
    if (escape(set, character)) return one_of(std::move(set));
    return one_of(literal(character));
  }
  for (const char* unsupported : {".", "^", "$", "?", "*", "+", "{", "}", "]"}) {
    if (sees(unsupported)) fail(fmt::format("'{}' is not supported here", unsupported));
  }
  return one_of(literal(next()));
}

PatternCompiler::Part PatternCompiler::group() {
  if (++depth_ > kMaxDepth) fail("groups are nested too deeply");
  const bool outer_case = ignore_case_;
  const bool not_ahead = take("?!");
  const bool ahead = !not_ahead && take("?=");
  if (take("?i:")) {
    ignore_case_ = true;
  } else if (!ahead && !not_ahead && !take("?:") && sees("?")) {
    fail("this kind of group is not supported");
  }
  Part inner = alternatives();
  if (!take(")")) fail("a '(' without its ')'");
  ignore_case_ = outer_case;
  --depth_;
  if (!ahead && !not_ahead) return inner;
  Part look;
  look.program.push_back({.op = Op::kAhead, .negated = not_ahead, .first = inner.program.size() + 2});
  append(look, inner);
  look.program.push_back({.op = Op::kMatched});
  return look;
}

PatternCompiler::Part PatternCompiler::one_of(CharacterSet set) {
  set.seal();
  sets_.push_back(std::move(set));
  Part part;
  part.program.push_back({.op = Op::kSet, .set = sets_.size() - 1});
  part.shortest = 1;
  return part;
}

PatternCompiler::Repeat PatternCompiler::counted() {
  const auto number = [&]() -> size_t {
    size_t value = 0;
    bool any = false;
    for (; !at_end() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_, any = true) {
      value = value * 10 + static_cast<size_t>(text_[at_] - '0');
      if (value > kMaxCount) fail("a repetition of more than 1,000 times");
    }
    if (!any) fail("a repetition without its number");
    return value;
  };
  Repeat repeat;
  repeat.min = number();
  repeat.max = repeat.min;
  if (take(",")) repeat.max = sees("}") ? kUnbounded : number();
  if (!take("}")) fail("a '{' without its '}'");
  if (repeat.max < repeat.min || repeat.max == 0) fail("a repetition of no times");
  return repeat;
}

PatternCompiler::Repeat PatternCompiler::quantifier() {
  Repeat repeat;
  bool braces = false;
  if (take("?")) {
    repeat.min = 0;
  } else if (take("*")) {
    repeat = {0, kUnbounded, false};
  } else if (take("+")) {
    repeat.max = kUnbounded;
  } else if (take("{")) {
    repeat = counted();
    braces = true;
  } else {
    return repeat;
  }
  if (sees("?") || (braces && sees("+"))) fail("lazy and nested quantifiers are not supported");
  repeat.possessive = take("+");
  if (sees("?") || sees("*") || sees("+") || sees("{")) fail("a quantifier of a quantifier");
  return repeat;
}

PatternCompiler::Part PatternCompiler::repeated(Part part, const Repeat& repeat) {
  if (repeat.min == 1 && repeat.max == 1) return part;
  if (part.shortest == 0) fail("a repetition of what may be empty");
  Part result;
  result.shortest = part.shortest * repeat.min;
  if (part.program.size() == 1 && part.program[0].op == Op::kSet) {
    result.program.push_back({.op = Op::kRun,
                              .possessive = repeat.possessive,
                              .set = part.program[0].set,
                              .min = repeat.min,
                              .max = repeat.max});
    return result;
  }
  if (repeat.possessive) fail("a possessive quantifier of a group is not supported");
  for (size_t i = 0; i < repeat.min; ++i) append(result, part);
  const size_t body = part.program.size();
  if (repeat.max == kUnbounded) {
    const size_t loop = result.program.size();
    result.program.push_back({.op = Op::kSplit, .first = loop + 1, .second = loop + body + 2});
    append(result, part);
    result.program.push_back({.op = Op::kJump, .first = loop});
    return result;
  }
  const size_t end = result.program.size() + (repeat.max - repeat.min) * (body + 1);
  for (size_t i = repeat.min; i < repeat.max; ++i) {
    result.program.push_back({.op = Op::kSplit, .first = result.program.size() + 1, .second = end});
    append(result, part);
  }
  return result;
}

CharacterSet PatternCompiler::bracket_class() {
  if (++depth_ > kMaxDepth) fail("classes are nested too deeply");
  CharacterSet set;
  set.negated = take("^");
  if (sees("]")) fail("an empty class");
  while (!take("]")) class_item(set);
  if (ignore_case_) fail("a class inside (?i:) is not supported");
  set.seal();
  --depth_;
  return set;
}

void PatternCompiler::class_item(CharacterSet& set) {
  if (sees("&&")) fail("intersections of classes are not supported");
  if (sees("[:")) fail("POSIX classes are not supported");
  if (take("[")) {
    set.nested.push_back(bracket_class());
    return;
  }
  const auto character = [&](char32_t& c) {
    if (!take("\\")) {
      c = next();
      return true;
    }
    return !escape(set, c);
  };
  char32_t first = 0;
  if (!character(first)) return;
  char32_t last = first;
  if (sees("-") && !sees("-]")) {
    take("-");
    if (sees("[") || !character(last) || last < first) fail("a range without its end");
  }
  set.ranges.emplace_back(first, last);
}

bool PatternCompiler::escape(CharacterSet& set, char32_t& character) {
  const char32_t c = next();
  switch (c) {
    case U'p':
    case U'P':
      property(set, c == U'P');
      return true;
    case U's':
      set.classes |= kSpace;
      return true;
    case U'S':
      set.not_classes |= kSpace;
      return true;
    case U'n':
      character = U'\n';
      return false;
    case U'r':
      character = U'\r';
      return false;
    case U't':
      character = U'\t';
      return false;
    default:
      if (c >= 128 || is_ascii_letter(c) || (c >= '0' && c <= '9')) {
        std::string name;
        append_utf8(c, name);
        fail("the escape '\\" + name + "' is not supported");
      }
      character = c;
      return false;
  }
}

void PatternCompiler::property(CharacterSet& set, bool negated) {
  const size_t close = text_.find('}', at_);
  if (!sees("{") || close == std::string_view::npos) fail("\\p without {name}");
  const std::string_view name = text_.substr(at_ + 1, close - at_ - 1);
  if (name != "L" && name != "N") fail(fmt::format("the property '{}' is not supported", name));
  at_ = close + 1;
  uint8_t& classes = negated ? set.not_classes : set.classes;
  classes |= name == "L" ? kLetter : kNumber;
}

CharacterSet PatternCompiler::literal(char32_t c) const {
  CharacterSet set;
  set.ranges.emplace_back(c, c);
  if (!ignore_case_) return set;
  if (c >= 128) fail("a character beyond ASCII inside (?i:) is not supported");
  if (is_ascii_letter(c)) {
    const char32_t other = c ^ 0x20;
    set.ranges.emplace_back(other, other);
    // Unicode folds the long s to s and the Kelvin sign to k.
    if ((c | 0x20) == U's') set.ranges.emplace_back(0x17F, 0x17F);
    if ((c | 0x20) == U'k') set.ranges.emplace_back(0x212A, 0x212A);
  }
  return set;
}

}  // namespace draftsmith::data
