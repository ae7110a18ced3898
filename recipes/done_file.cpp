#include "recipes/done_file.h"

#include "base/files.h"
#include "base/json.h"
#include "base/sha256.h"

namespace draftsmith::recipes {

namespace {

constexpr const char* kDoneName = "DONE";

std::map<std::string, std::string> hash_files(const std::filesystem::path& directory) {
  std::map<std::string, std::string> hashes;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    const std::string name = entry.path().lexically_relative(directory).string();
    if (name != kDoneName) hashes[name] = sha256_file(entry.path());
  }
  return hashes;
}

}  // namespace

void write_done(const std::filesystem::path& directory, Done done) {
  const nlohmann::ordered_json json = {
      {"stage", done.stage},     {"kind", done.kind},     {"version", done.version},        {"hash", done.hash},
      {"options", done.options}, {"inputs", done.inputs}, {"files", hash_files(directory)}, {"finished", done.finished},
      {"seconds", done.seconds}};
  write_json(directory / kDoneName, json);
}

std::optional<Done> read_done(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / kDoneName;
  if (!std::filesystem::exists(file)) return std::nullopt;
  const nlohmann::json json = load_json(file);
  try {
    return Done{.stage = json.at("stage"),
                .kind = json.at("kind"),
                .version = json.at("version"),
                .hash = json.at("hash"),
                .options = json.at("options"),
                .inputs = json.at("inputs"),
                .files = json.at("files"),
                .finished = json.at("finished"),
                .seconds = json.at("seconds")};
  } catch (const nlohmann::json::exception& error) {
    throw UserError({.where = file.string(),
                     .what = "damaged stage marker",
                     .expected = "the DONE file of a finished stage",
                     .found = error.what(),
                     .hint = "remove the stage's directory; the recipe then runs the stage again"});
  }
}

std::vector<Problem> verify_done(const std::filesystem::path& directory, const Done& done) {
  const auto now = hash_files(directory);
  std::vector<Problem> problems;
  for (const auto& [name, hash] : done.files) {
    const auto found = now.find(name);
    const std::string where = (directory / name).string();
    if (found == now.end()) {
      problems.push_back({.where = where, .what = "file is missing", .expected = "sha256 " + hash.substr(0, 16)});
    } else if (found->second != hash) {
      problems.push_back({.where = where,
                          .what = "file was changed after the stage had finished",
                          .expected = "sha256 " + hash.substr(0, 16),
                          .found = "sha256 " + found->second.substr(0, 16)});
    }
  }
  for (const auto& [name, hash] : now) {
    if (done.files.contains(name)) continue;
    problems.push_back({.where = (directory / name).string(), .what = "file was added after the stage had finished"});
  }
  return problems;
}

}  // namespace draftsmith::recipes
