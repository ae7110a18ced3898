#include "model/model_hash.h"

#include <map>

#include "base/files.h"
#include "model/model_directory.h"
#include "model/model_kind.h"
#include "model/weight_files.h"

namespace draftsmith::model {

std::string model_hash(const std::filesystem::path& directory) {
  // Refuses what is no model directory, but takes any kind of model: a router is bound to a Tandem secondary as well.
  load_config(directory, kind_of_directory(directory).value_or(ModelKind::kOrdinary));
  std::map<std::string, std::string> hashes = {{"config.json", sha256_file(directory / "config.json")}};
  const WeightFiles weights(directory);
  for (const auto& file : weights.files()) hashes[file->file().filename().string()] = sha256_file(file->file());
  Sha256 all;
  for (const auto& [name, hash] : hashes) all.update(name + " " + hash + "\n");
  return all.hex_digest();
}

}  // namespace draftsmith::model
