// Memory of the stand-in accelerator: one region, mapped twice. Tensors have addresses that may not be read; operators
// use the readable ones. Released memory is overwritten with bytes of ones, which are NaN or -1: what still reads it
// shows that.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

#include <c10/core/Allocator.h>

namespace draftsmith::standin {

// Blocks of memory that were released, by size.
using SpareBlocks = std::map<size_t, std::vector<void*>>;

// Memory of recordings, as a private pool of CUDA's allocator: while it lives, no one else gets what it has taken.
class MemoryPool {
 public:
  MemoryPool() = default;
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;
  ~MemoryPool();

 private:
  friend class DeviceMemory;
  SpareBlocks spare_;
  std::map<const void*, size_t> fresh_;  // sizes of the blocks that the present recording was given
};

class DeviceMemory final : public c10::Allocator {
 public:
  // Returns the memory of the process.
  static DeviceMemory& instance();

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t bytes) const override;

  // Returns where operators read and write what tensors have at `address`.
  void* readable(const void* address) const;

  // Gives memory of a pool until its recording ends. What was given has no contents then.
  void begin_recording(MemoryPool& pool);
  void end_recording();
  // Returns whether the present recording was given the block that begins at `address`.
  bool is_fresh(const void* address);

  // Returns the most bytes that were allocated at a time since reset_peak().
  size_t peak();
  void reset_peak();
  // Lets so many bytes be allocated at a time; 0: as many as there are. Sizes are rounded up to powers of two.
  void limit(size_t bytes);

 private:
  friend class MemoryPool;
  struct Block {
    size_t size = 0;
    MemoryPool* pool = nullptr;  // null: of all
  };

  DeviceMemory() = default;
  void map_region();
  void* take_from_region(size_t size);
  void give_up(MemoryPool& pool);
  void overwrite(const void* address, size_t size) const;
  static void release(void* address);

  char* hidden_ = nullptr;  // both are mapped by the first allocation: tests on a GPU need no region
  char* readable_ = nullptr;
  size_t used_ = 0;  // of the region
  size_t allocated_ = 0;
  size_t peak_ = 0;
  size_t limit_ = 0;
  std::mutex mutex_;
  std::map<void*, Block> blocks_;    // that are allocated
  SpareBlocks spare_;                // of no pool
  MemoryPool* recording_ = nullptr;  // the pool of the present recording
};

}  // namespace draftsmith::standin
