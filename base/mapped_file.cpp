#include "base/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

namespace draftsmith {

MappedFile::MappedFile(const std::filesystem::path& file) {
  const auto refuse = [&](const std::string& what, const std::string& found) {
    throw UserError({.where = file.string(), .what = what, .found = found});
  };
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) refuse("cannot open the file", std::strerror(errno));
  struct stat status {};
  const bool regular = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  bytes_ = regular ? static_cast<int64_t>(status.st_size) : 0;
  const auto size = static_cast<size_t>(bytes_);
  void* mapped = size > 0 ? ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0) : nullptr;
  const int error = errno;
  ::close(descriptor);
  if (!regular) refuse("cannot read the file", "no regular file");
  if (mapped == MAP_FAILED) refuse("cannot map the file into memory", std::strerror(error));
  if (mapped == nullptr) return;
  data_ = std::shared_ptr<const char>(static_cast<const char*>(mapped),
                                      [size](const char* data) { ::munmap(const_cast<char*>(data), size); });
}

void MappedFile::will_need() const {
  if (data_ != nullptr) ::madvise(const_cast<char*>(data_.get()), static_cast<size_t>(bytes_), MADV_WILLNEED);
}

void MappedFile::forget_pages() const {
  if (data_ != nullptr) ::madvise(const_cast<char*>(data_.get()), static_cast<size_t>(bytes_), MADV_DONTNEED);
}

}  // namespace draftsmith
