#include "model/files/model_hash.h"

#include <filesystem>
#include <map>

#include "base/json.h"
#include "base/sha256.h"
#include "model/files/model_directory.h"
#include "model/files/model_kind.h"
#include "model/files/weight_files.h"

namespace draftsmith::model {

namespace {

namespace fs = std::filesystem;

// Evaluations open the same model many times.
std::string remembered_sha256(const fs::path& file) {
  static RememberedHashes known;
  return known.of(file);
}

// Returns the hash of config.json without the paths of other models.
std::string config_hash(const fs::path& file, const ModelKind& kind) {
  if (kind.remove_paths == nullptr) return sha256_file(file);
  nlohmann::json config = load_json(file, {.max_bytes = 16'000'000});
  kind.remove_paths(config);
  Sha256 hash;
  hash.update(config.dump());
  return hash.hex_digest();
}

}  // namespace

std::string model_hash(const std::filesystem::path& directory) {
  // Refuses what is no model directory, but takes any kind of model: a router is bound to a Tandem secondary as well.
  const ModelKind& kind = kind_of_directory(directory);
  load_config(directory, kind);
  std::map<std::string, std::string> hashes = {{"config.json", config_hash(directory / "config.json", kind)}};
  const WeightFiles weights(directory);
  for (const auto& file : weights.files()) hashes[file->file().filename().string()] = remembered_sha256(file->file());
  Sha256 all;
  for (const auto& [name, hash] : hashes) all.update(name + " " + hash + "\n");
  return all.hex_digest();
}

}  // namespace draftsmith::model
