// From a regular expression to the PatternProgram of a TextPattern: a parser by recursive descent that emits instructions.
#pragma once

#include <string>
#include <string_view>

#include "data/tokenizers/pattern_program.h"

namespace draftsmith::data {

class PatternCompiler {
 public:
  // Both must outlive the compiler.
  PatternCompiler(std::string_view expression, const std::string& where) : text_(expression), where_(where) {}

  // Errors: UserError that quotes the expression and names the place in it.
  PatternProgram compile();

 private:
  using Instruction = PatternProgram::Instruction;
  using Op = PatternProgram::Op;
  using Program = std::vector<Instruction>;

  // Instructions with jumps relative to their own begin, and the fewest characters they match.
  struct Part {
    Program program;
    size_t shortest = 0;
  };
  struct Repeat {
    size_t min = 1;
    size_t max = 1;
    bool possessive = false;
  };

  Part alternatives();
  Part sequence();
  Part atom();
  Part group();
  Part one_of(CharacterSet set);
  Part repeated(Part part, const Repeat& repeat);
  Repeat quantifier();
  Repeat counted();
  CharacterSet bracket_class();
  void class_item(CharacterSet& set);
  // An escape, the backslash already read: a class added to `set`, or a character returned.
  bool escape(CharacterSet& set, char32_t& character);
  void property(CharacterSet& set, bool negated);
  CharacterSet literal(char32_t c) const;

  bool at_end() const { return at_ >= text_.size(); }
  bool sees(std::string_view what) const { return text_.substr(at_, what.size()) == what; }
  bool take(std::string_view what);
  char32_t next();
  void append(Part& to, const Part& part) const;
  [[noreturn]] void fail(const std::string& what) const;

  std::string_view text_;
  const std::string& where_;
  size_t at_ = 0;
  size_t depth_ = 0;
  bool ignore_case_ = false;
  std::vector<CharacterSet> sets_;
};

}  // namespace draftsmith::data
