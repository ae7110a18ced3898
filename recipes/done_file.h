// DONE: the last file a stage writes. It says what made the stage directory and what it held when it was finished.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace draftsmith::recipes {

struct Done {
  std::string stage{};
  std::string kind{};
  int64_t version = 0;
  std::string hash{};                           // identity of the stage: options, version, inputs
  nlohmann::ordered_json options{};             // resolved options behind the hash
  std::map<std::string, std::string> inputs{};  // input stage or file -> its hash
  std::map<std::string, std::string> files{};   // file of the directory -> SHA-256 of its content
  std::string finished{};                       // UTC, ISO 8601
  double seconds = 0.0;                         // of the run that finished it
};

// Hashes the directory's files and writes DONE by atomic rename.
void write_done(const std::filesystem::path& directory, Done done);
// The directory's DONE, or nothing when there is none. UserError when it is damaged.
std::optional<Done> read_done(const std::filesystem::path& directory);
// File of a directory -> SHA-256 of its content.
using FileHashes = std::map<std::string, std::string>;
// How the files that a directory holds `now` differ from those at `moment` ("the export"): each missing, changed or
// added file is one problem.
std::vector<Problem> changed_files(const std::filesystem::path& directory, const FileHashes& then,
                                   const FileHashes& now, const std::string& moment);
// Compares the directory with its DONE: each missing, changed or added file is one problem.
std::vector<Problem> verify_done(const std::filesystem::path& directory, const Done& done);

}  // namespace draftsmith::recipes
