// DONE: the last file that a stage writes. It records the stage's identity and all files of the finished directory.
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
  nlohmann::ordered_json options{};             // resolved options
  std::map<std::string, std::string> inputs{};  // input stage or file -> its hash
  std::map<std::string, std::string> files{};   // file of the directory -> SHA-256 of its content
  std::string finished{};                       // UTC, ISO 8601
  double seconds = 0.0;                         // duration of the run that finished the stage
};

// Hashes the directory's files and writes DONE by atomic rename.
void write_done(const std::filesystem::path& directory, Done done);
// Reads the directory's DONE; nothing if there is none. Errors: UserError if the file is damaged.
std::optional<Done> read_done(const std::filesystem::path& directory);
// Compares a directory with its DONE. Returns one problem for each missing, changed or added file.
std::vector<Problem> verify_done(const std::filesystem::path& directory, const Done& done);

}  // namespace draftsmith::recipes
