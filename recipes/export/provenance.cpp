#include "recipes/export/provenance.h"

#include <set>

namespace draftsmith::recipes {

namespace {

namespace fs = std::filesystem;

// Returns the DONE of a directory, nothing if it cannot be read: the directory may be unrelated to the model.
std::optional<Done> readable_done(const fs::path& directory) {
  try {
    return read_done(directory);
  } catch (const UserError&) {
    return std::nullopt;
  } catch (const fs::filesystem_error&) {
    return std::nullopt;
  }
}

// Returns the finished stages of a work directory by their hashes.
std::map<std::string, Done> stages_by_hash(const fs::path& work) {
  std::map<std::string, Done> stages;
  for (const auto& entry : fs::directory_iterator(work)) {
    if (entry.is_symlink() || !entry.is_directory()) continue;
    if (auto done = readable_done(entry.path())) stages[done->hash] = std::move(*done);
  }
  return stages;
}

}  // namespace

std::optional<Provenance> find_provenance(const fs::path& model) {
  const fs::path stage = fs::canonical(model).parent_path();  // the model of a stage is its folder model/
  auto made_by = read_done(stage);
  if (!made_by) return std::nullopt;
  Provenance provenance{.made_by = std::move(*made_by), .behind = {}, .data = {}};
  const auto stages = stages_by_hash(stage.parent_path());
  std::set<std::string> seen = {provenance.made_by.hash};
  std::vector<Done> queue = {provenance.made_by};
  for (size_t i = 0; i < queue.size(); ++i) {
    const auto inputs = queue[i].inputs;
    for (const auto& [input, hash] : inputs) {
      if (!input.starts_with("@")) {
        provenance.data[input] = hash;
      } else if (const auto found = stages.find(hash); found != stages.end() && seen.insert(hash).second) {
        queue.push_back(found->second);
      }
    }
  }
  provenance.behind.assign(queue.begin() + 1, queue.end());
  return provenance;
}

}  // namespace draftsmith::recipes
