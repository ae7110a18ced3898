#include "recipes/directory_lock.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/error.h"

namespace draftsmith::recipes {

DirectoryLock::DirectoryLock(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / ".lock";
  descriptor_ = ::open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (descriptor_ < 0) {
    throw UserError({.where = file.string(), .what = "cannot be created", .found = std::strerror(errno)});
  }
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    ::close(descriptor_);
    throw UserError({.where = directory.string(),
                     .what = "another run is working in this directory",
                     .hint = "wait for it to end, or choose another directory with --work"});
  }
}

DirectoryLock::~DirectoryLock() {
  ::close(descriptor_);
}

}  // namespace draftsmith::recipes
