#include "model/files/new_directory.h"

#include <system_error>

#include "base/error.h"
#include "base/files.h"

namespace draftsmith::model {

namespace fs = std::filesystem;

fs::path require_free_place(const fs::path& directory) {
  fs::path place = directory.has_filename() ? directory : directory.parent_path();
  std::error_code status;
  if (fs::exists(place, status) && !(fs::is_directory(place, status) && fs::is_empty(place, status))) {
    throw UserError({.where = place.string(),
                     .what = "exists already and is not overwritten",
                     .expected = "a new directory",
                     .found = {},
                     .hint = "choose another name, or remove it"});
  }
  return place;
}

void write_new_directory(const fs::path& directory, const std::function<void(const fs::path& temporary)>& fill) {
  const fs::path target = require_free_place(directory);
  if (target.has_parent_path()) make_directories(target.parent_path());
  AtomicPath place(target);
  make_directories(place.temporary());
  fill(place.temporary());
  place.commit();
}

}  // namespace draftsmith::model
