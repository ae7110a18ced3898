#include "model/files/copy_model.h"

#include <string>

#include "base/error.h"
#include "base/files.h"

namespace draftsmith::model {

namespace {

namespace fs = std::filesystem;

// Files that an export adds to a model (recipes/export/): they do not describe the copy.
bool belongs_to_export(const fs::path& file, bool exported) {
  const std::string name = file.filename().string();
  if (file.parent_path().filename() == "draftsmith") return name == "export.json" || name == "probes.safetensors";
  return exported && name == "README.md";
}

void copy_one(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::copy_file(from, to, error);
  if (error) {
    throw RunError({.where = to.string(), .what = "a file of the model could not be copied", .found = error.message()});
  }
  fs::permissions(to, fs::perms::owner_write, fs::perm_options::add, error);
}

void copy_files(const fs::path& from, const fs::path& to, bool exported) {
  make_directories(to);
  for (const auto& entry : fs::directory_iterator(from)) {
    const bool hidden = entry.path().filename().string().starts_with(".");
    if (hidden || !entry.is_regular_file() || belongs_to_export(entry.path(), exported)) continue;
    copy_one(entry.path(), to / entry.path().filename());
  }
}

}  // namespace

void copy_model(const fs::path& from, const fs::path& to) {
  const fs::path own = from / "draftsmith";
  copy_files(from, to, fs::exists(own / "export.json"));
  if (!fs::is_directory(own)) return;
  copy_files(own, to / "draftsmith", false);
  for (const auto& entry : fs::directory_iterator(own)) {
    if (entry.is_directory()) copy_files(entry.path(), to / "draftsmith" / entry.path().filename(), false);
  }
}

}  // namespace draftsmith::model
