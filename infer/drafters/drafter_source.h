// What a user names as a drafter: a model directory, an n-gram table or prompt look-up.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace draftsmith::infer {

constexpr int64_t kLongestLookup = 4;  // n-gram that prompt look-up begins with, unless told otherwise
constexpr int64_t kMostLookup = 16;

// One of the three.
struct DrafterSource {
  std::filesystem::path model{};  // directory
  std::filesystem::path ngram{};  // n-gram table
  int64_t lookup = 0;             // longest n-gram of prompt look-up; 0: none

  // As parse_drafter() reads it.
  std::string text() const;
};

// "DIR", "ngram:FILE", "lookup" or "lookup:N" (N from 1 to 16). Errors: UserError for another N and for "ngram:" alone.
DrafterSource parse_drafter(const std::string& text);

}  // namespace draftsmith::infer
