// File mapped as read-only memory: pages are read when they are touched and dropped when memory gets scarce.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <stdexcept>

namespace draftsmith {

class MappedFile {
 public:
  MappedFile() = default;
  // Errors: UserError if the file is absent, not a regular file or cannot be mapped.
  explicit MappedFile(const std::filesystem::path& file);

  // Returns `count` values from byte `offset` on, valid as long as a copy of this mapping. Throws std::out_of_range
  // outside the file and for an offset that is not a multiple of a value's size.
  template <class T>
  std::span<const T> values(int64_t offset, int64_t count) const {
    if (count == 0) return {};
    const auto size = static_cast<int64_t>(sizeof(T));
    if (offset < 0 || count < 0 || offset > bytes_ || count > (bytes_ - offset) / size || offset % size != 0) {
      throw std::out_of_range("values outside a mapped file");
    }
    return {reinterpret_cast<const T*>(data_.get() + offset), static_cast<size_t>(count)};
  }
  int64_t bytes() const { return bytes_; }
  // The first byte, valid as long as a copy of this mapping or of this pointer; null for an empty file.
  const std::shared_ptr<const char>& data() const { return data_; }
  // Starts reading the whole file into the system's cache in the background.
  void will_need() const;
  // Drops the touched pages; later uses read them again from the file or the system's cache.
  void forget_pages() const;

 private:
  std::shared_ptr<const char> data_;
  int64_t bytes_ = 0;
};

}  // namespace draftsmith
