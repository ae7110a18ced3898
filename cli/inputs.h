// Files that several commands read: results of evaluations, and lines of text or token ids.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace draftsmith::infer {
struct LoadedModel;  // infer/load_models.h
}

namespace draftsmith::cli {

// Returns the file of results that the user named, or named the directory of: of an evaluation, a stage or a recipe's
// work. Errors: UserError if there is none, or several.
std::filesystem::path find_results(const std::filesystem::path& path);

enum class LineKind { kSource, kTarget };

// Reads the token ids of every line of `file` ("-" is standard input). If `ids`, lines are ids separated by blanks,
// which are taken as they are. Otherwise lines are text; EOS is added to targets and to sources of encoder-decoders,
// and BOS before prompts if the tokenizer's settings ask for it. Empty lines are valid. Errors: a UserError with
// file:line for invalid UTF-8, words that are not ids, and ids outside the vocabulary.
std::vector<std::vector<int64_t>> read_token_lines(const std::string& file, const infer::LoadedModel& loaded,
                                                   LineKind kind, bool ids);

}  // namespace draftsmith::cli
