// Files that several commands read: suites, results of evaluations, and lines of text or token ids.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace draftsmith::evaluate {
struct SuiteOptions;  // evaluate/suite/suite_options.h
}
namespace draftsmith::infer {
struct LoadedModel;  // infer/load_models.h
}

namespace draftsmith::cli {

// Reads a suite and applies `--set` overlays; a path may begin with the name of a task, run or drafter. A suite without
// a name takes the file's. Errors: a UserError with all problems: missing files and model directories, references that
// lack lines.
evaluate::SuiteOptions load_suite(const std::filesystem::path& file, const std::vector<std::string>& overrides);

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
