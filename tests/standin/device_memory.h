// Memory of the stand-in accelerator: one region, mapped twice. Tensors have addresses that may not be read; operators
// use the readable ones.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

#include <c10/core/Allocator.h>

namespace draftsmith::standin {

class DeviceMemory final : public c10::Allocator {
 public:
  // Returns the memory of the process.
  static DeviceMemory& instance();

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t bytes) const override;

  // Returns where operators read and write what tensors have at `address`.
  void* readable(const void* address) const;

  // Returns the most bytes that were allocated at a time since reset_peak().
  size_t peak();
  void reset_peak();
  // Lets so many bytes be allocated at a time; 0: as many as there are. Sizes are rounded up to powers of two.
  void limit(size_t bytes);

 private:
  DeviceMemory();
  static void release(void* address);

  char* hidden_ = nullptr;
  char* readable_ = nullptr;
  size_t used_ = 0;  // of the region
  size_t allocated_ = 0;
  size_t peak_ = 0;
  size_t limit_ = 0;
  std::mutex mutex_;
  std::map<void*, size_t> sizes_;               // of allocated blocks
  std::map<size_t, std::vector<void*>> spare_;  // released blocks by size
};

}  // namespace draftsmith::standin
