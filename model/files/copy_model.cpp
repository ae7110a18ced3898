#include "model/files/copy_model.h"

#include <string>

#include "base/error.h"
#include "base/files.h"

namespace draftsmith::model {

namespace {

namespace fs = std::filesystem;

void copy_one(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::copy_file(from, to, error);
  if (error) {
    throw RunError({.where = to.string(), .what = "a file of the model could not be copied", .found = error.message()});
  }
  fs::permissions(to, fs::perms::owner_write, fs::perm_options::add, error);
}

void copy_files(const fs::path& from, const fs::path& to) {
  make_directories(to);
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".") || name == "README.md" || !entry.is_regular_file()) continue;
    copy_one(entry.path(), to / name);
  }
}

}  // namespace

void copy_model(const fs::path& from, const fs::path& to) {
  const fs::path own = from / "draftsmith";
  copy_files(from, to);
  if (!fs::is_directory(own)) return;
  copy_files(own, to / "draftsmith");
  for (const auto& entry : fs::directory_iterator(own)) {
    if (entry.is_directory()) copy_files(entry.path(), to / "draftsmith" / entry.path().filename());
  }
}

}  // namespace draftsmith::model
