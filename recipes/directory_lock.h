// One run at a time in a work directory.
#pragma once

#include <filesystem>

namespace draftsmith::recipes {

// Holds `directory`/.lock from construction to destruction; the system releases it when the process dies.
class DirectoryLock {
 public:
  // Throws UserError when another process holds it.
  explicit DirectoryLock(const std::filesystem::path& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace draftsmith::recipes
