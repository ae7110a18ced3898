#include "recipes/export/gguf/gguf_commands.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/shell_command.h"
#include "model/files/model_hash.h"
#include "recipes/export/gguf/gguf_file.h"

namespace draftsmith::recipes {

namespace {

namespace fs = std::filesystem;

// Returns the hash of the model that a file was exported from; nothing for files of other programs and damaged ones.
std::optional<std::string> exported_model(const fs::path& path) {
  try {
    const GgufFile file(path);
    for (const auto& [name, value] : file.values()) {
      if (name == kGgufModelHash && std::holds_alternative<std::string>(value)) return std::get<std::string>(value);
    }
  } catch (const Error&) {
    return std::nullopt;  // another program's file, which is none of the user's concern here
  }
  return std::nullopt;
}

// Returns the newest file beside the drafter's that was exported from the target.
std::optional<fs::path> exported_target(const fs::path& target, const fs::path& drafter) {
  const fs::path folder = drafter.parent_path();
  std::optional<std::string> hash;  // takes a reading of the weights, so only if there is something to compare with
  std::optional<fs::path> newest;
  for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder)) {
    const fs::path file = folder / entry.path().filename();
    if (file.extension() != kGgufEnding || file.filename() == drafter.filename() || !entry.is_regular_file()) continue;
    const auto exported = exported_model(file);
    if (!exported) continue;
    if (!hash) hash = model::model_hash(target);
    if (*exported == *hash && (!newest || fs::last_write_time(file) > fs::last_write_time(*newest))) newest = file;
  }
  return newest;
}

// Returns a name for the target's file. Stages call each directory "model", so that is named for its stage.
fs::path new_file(const fs::path& target, const fs::path& drafter) {
  fs::path named = fs::absolute(target).lexically_normal();
  if (!named.has_filename()) named = named.parent_path();
  if (named.filename() == "model" && named.parent_path().has_filename()) named = named.parent_path();
  const std::string stem = named.filename().string();
  const auto file = [&](const std::string& ending) { return drafter.parent_path() / (stem + ending + kGgufEnding); };
  fs::path free = file("");
  for (int number = 2; fs::exists(free) || free == drafter; ++number) free = file(fmt::format("-{}", number));
  return free;
}

std::string server(const fs::path& target, const fs::path& drafter) {
  return fmt::format("llama-server --model {} --model-draft {} --draft-max 5", shell_word(target.string()),
                     shell_word(drafter.string()));
}

}  // namespace

std::vector<std::string> gguf_commands(const std::optional<fs::path>& target, const fs::path& drafter) {
  if (!target) return {server("TARGET.gguf", drafter)};
  if (const auto file = exported_target(*target, drafter)) return {server(*file, drafter)};
  const fs::path file = new_file(*target, drafter);
  return {fmt::format("draftsmith export --model {} --format gguf --out {}", shell_word(target->string()),
                      shell_word(file.string())),
          server(file, drafter)};
}

}  // namespace draftsmith::recipes
