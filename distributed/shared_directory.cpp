#include "distributed/shared_directory.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/environment.h"
#include "base/files.h"

namespace draftsmith {

void require_shared_directory(World& world, const std::filesystem::path& directory, const std::string& flag) {
  if (world.is_alone()) return;
  const std::filesystem::path mark = directory / ".job";
  const std::string own = fmt::format("{}/{}", now_utc(), ::getpid());
  if (world.leads()) write_file_atomic(mark, own);
  const std::string leaders = world.from_leader("comparing directories", own);
  const bool seen = std::filesystem::exists(mark) && read_file(mark) == leaders;
  const bool all = !world.any("comparing directories", !seen);
  if (world.leads()) std::filesystem::remove(mark);
  if (all) return;
  throw UserError({.where = directory.string(),
                   .what = "the processes of the job do not share this directory",
                   .expected = "one directory that all machines see, by the same name",
                   .found = seen ? "another process sees another directory" : "what process 0 wrote there is missing",
                   .hint = "put " + flag + " on a shared file system"});
}

}  // namespace draftsmith
