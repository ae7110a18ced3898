// Lock that allows one run at a time in a work directory.
#pragma once

#include <filesystem>

namespace draftsmith::recipes {

// Lock on `directory`/.lock from construction to destruction. The system releases it when the process ends.
class DirectoryLock {
 public:
  // Throws UserError if another process holds the lock.
  explicit DirectoryLock(const std::filesystem::path& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace draftsmith::recipes
