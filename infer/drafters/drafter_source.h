// What a user names as a drafter: a model directory, a Tandem secondary's, an n-gram table, prompt look-up or the
// target's own first layers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace draftsmith::infer {

constexpr int64_t kLongestLookup = 4;  // n-gram that prompt look-up begins with, unless told otherwise
constexpr int64_t kMostLookup = 16;

// One of the five.
struct DrafterSource {
  std::filesystem::path model{};   // directory
  std::filesystem::path ngram{};   // n-gram table
  int64_t lookup = 0;              // longest n-gram of prompt look-up; 0: none
  std::filesystem::path tandem{};  // directory of a Tandem secondary of the target
  int64_t exit = 0;                // layers of the target itself; 0: none

  // Of a model, a Tandem secondary or not; empty: no model.
  const std::filesystem::path& directory() const { return tandem.empty() ? model : tandem; }
  // As parse_drafter() reads it.
  std::string text() const;
};

// "DIR" (Tandem secondaries are known by their config.json), "ngram:FILE", "lookup" or "lookup:N" (N from 1 to 16), or
// "exit:N" (N from 1). Errors: UserError for another N and for "ngram:" alone.
DrafterSource parse_drafter(const std::string& text);

}  // namespace draftsmith::infer
