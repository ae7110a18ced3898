// The kinds of drafters: how users name each one, in `--drafter` and in a suite's [[drafter]], and how it is loaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>

#include "base/options.h"
#include "infer/drafters/loaded_drafter.h"

namespace draftsmith::model {
struct LoadOptions;  // model/files/checkpoint.h
}

namespace draftsmith::infer {

constexpr int64_t kLongestLookup = 4;  // default of LookupSpec::longest
constexpr int64_t kMostLookup = 16;

// A small language model; one without an encoder reads the target's.
struct ModelSpec {
  std::filesystem::path directory;
};
// A Tandem secondary of the target.
struct TandemSpec {
  std::filesystem::path directory;
};
// A table of n-gram counts, made by `draftsmith data ngrams`.
struct NgramSpec {
  std::filesystem::path file;
};
// Prompt look-up.
struct LookupSpec {
  int64_t longest = kLongestLookup;  // n of the longest n-gram that is looked for, 1..kMostLookup
};
// The first layers of the target itself.
struct ExitSpec {
  int64_t layers = 0;  // 1..N; 0: the method's default
};

// Drafter that a user names. To add a kind: its struct here, its entries in registry.cpp, and its own two files.
using DrafterSpec = std::variant<ModelSpec, TandemSpec, NgramSpec, LookupSpec, ExitSpec>;

// Reads "DIR" (a directory's config.json says whether it is a Tandem secondary or shares the target's encoder),
// "ngram:FILE", "lookup" or "lookup:N" (N from 1 to 16), or "exit:N" (N from 1). Errors: UserError for another N and
// for "ngram:" without a file.
DrafterSpec parse_drafter(const std::string& text);

// Returns help for users on the texts that parse_drafter() reads.
std::string drafter_help();

// Returns the text that parse_drafter() reads as `spec`.
std::string to_text(const DrafterSpec& spec);

// Properties of a kind of drafter that window and acceptance rules ask for (infer/parts.h), known before loading.
struct DrafterKind {
  std::string name;
  bool logits = true;         // gives probabilities; false: only proposes tokens
  bool reads_target = false;  // drafts from the target's hidden states
  bool is_model = false;      // a model of its own, for which a router can be trained
};

// Returns the kind of drafter that `spec` names.
DrafterKind kind_of(const DrafterSpec& spec);

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
  // Returns the kind that is given; of several the last of the list of fields.
  DrafterSpec spec() const;
  static Fields<DrafterOptions> fields();
};

}  // namespace draftsmith::infer
