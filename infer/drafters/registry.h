// The kinds of drafters: how users name each one, in `--drafter` and in a suite's [[drafter]], and how it is loaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/options.h"
#include "infer/drafters/drafter.h"

namespace draftsmith::model {
struct LoadOptions;  // model/files/checkpoint.h
}

namespace draftsmith::infer {

constexpr int64_t kLongestLookup = 4;  // tokens of the longest n-gram of `lookup` without a number
constexpr int64_t kMostLookup = 16;

// Drafter that a user names.
struct DrafterSpec {
  DrafterKind kind = DrafterKind::kModel;
  std::filesystem::path path = {};  // a model's directory or a table's file
  int64_t number = 0;               // lookup: tokens of the longest n-gram; exit: layers, 0: the method's default
};

// Reads "DIR" (a directory's config.json says whether it is a Tandem secondary or shares the target's encoder),
// "ngram:FILE", "lookup" or "lookup:N" (N from 1 to 16), or "exit:N" (N from 1). Errors: UserError for another N and
// for "ngram:" without a file.
DrafterSpec parse_drafter(const std::string& text);

// Returns help for users on the texts that parse_drafter() reads.
std::string drafter_help();

// Returns the text that parse_drafter() reads as `spec`.
std::string to_text(const DrafterSpec& spec);

// Loads a drafter for the model in the directory `target`; empty: a Tandem secondary or a drafter that shares an
// encoder is not compared with the model that it reads. Errors: UserError for files that cannot be read, and for a
// drafter that reads another model.
SharedDrafter load_drafter(const DrafterSpec& spec, const std::filesystem::path& target,
                           const model::LoadOptions& options);

// A drafter as a suite's [[drafter]] describes it.
struct DrafterOptions {
  std::string name;  // by which settings refer to it
  std::filesystem::path model{};
  std::filesystem::path ngram{};
  bool lookup = false;
  int64_t longest = kLongestLookup;
  std::filesystem::path tandem{};
  int64_t exit = 0;                                 // layers; 0: none
  std::optional<std::string> dtype = std::nullopt;  // of a model or Tandem secondary; absent: the suite's
  // Returns the drafter that is given; of several the last in the table of kinds.
  DrafterSpec spec() const;
  static Fields<DrafterOptions> fields();
};

}  // namespace draftsmith::infer
