// The content of a jsonl file, found by reading it once: fields, categories, turns, and which fields are sources and
// references by the conventions of known data sets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace draftsmith::data {

// Lines of one category (Spec-Bench and SPEED-Bench: the field `category`).
struct JsonlCategory {
  std::string name;
  int64_t lines = 0;
  int64_t with_reference = 0;  // lines with the field `reference`
};

struct JsonlSummary {
  int64_t lines = 0;
  std::vector<std::string> fields = {};  // of the first object
  // Fields by convention; an empty source means that no convention fits.
  std::string source = {};
  std::vector<std::string> references = {};
  bool chat = false;                           // the source is a conversation: a list of messages
  std::string metric = "none";                 // bleu, rouge or none
  std::vector<JsonlCategory> categories = {};  // in the order of the file; empty without the field
  int64_t further_turns = 0;                   // lines with more than one turn
  int64_t placeholders = 0;                    // SPEED-Bench: prompts that its own program must fetch first
};

// Reads a file. Errors: UserError that names a line that is no JSON object, or that lacks a field that the first
// line's convention needs, and an empty file.
JsonlSummary summarize_jsonl(const std::filesystem::path& file);

}  // namespace draftsmith::data
