// The inside of the stand-in accelerator: its memory, and operators that are computed on the CPU in that memory.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
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
};

// One region, mapped twice. Tensors have addresses that may not be read; operators use the readable ones. Released
// memory is overwritten with bytes of ones, which are NaN or -1: what still reads it shows that.
class DeviceMemory final : public c10::Allocator {
 public:
  // Returns the memory of the process.
  static DeviceMemory& instance();

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override;

  // Returns where operators read and write what tensors have at `address`.
  void* readable(const void* address) const;

  // Gives memory of a pool until its recording ends. Then what was given has no contents, and all other memory has
  // those of before.
  void begin_recording(MemoryPool& pool);
  void end_recording();

 private:
  friend class MemoryPool;
  friend size_t take_peak_bytes();
  friend void limit_bytes(size_t bytes);
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
  size_t allocated_ = 0, peak_ = 0, limit_ = 0;
  std::mutex mutex_;
  std::map<void*, Block> blocks_;              // that are allocated
  SpareBlocks spare_;                          // of no pool
  MemoryPool* recording_ = nullptr;            // the pool of the present recording
  std::map<const void*, std::string> before_;  // contents of all blocks when it began
};

// Returns a CPU tensor over the same device memory. It keeps the memory.
at::Tensor readable_alias(const at::Tensor& tensor);
// Returns one that does not: a recorded launch knows addresses alone, and reads what lies there when it is replayed.
// Undefined for an undefined tensor.
at::Tensor readable_view(const at::Tensor& tensor);

// Runs any operator: checks that its tensors are on the device, runs the CPU's kernel on aliases of them, and brings
// new results to the device. Errors: std::logic_error for host tensors other than numbers, as on a GPU.
void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// While this exists, launches are recorded, memory is the pool's, and waits and copies from or to the host are errors.
// What launches wrote is undone at the end: recording does nothing, as on a GPU.
class Recording {
 public:
  using Launches = std::vector<std::function<void()>>;
  explicit Recording(MemoryPool& pool);
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording();
  // Returns what was recorded: the launches at the same addresses, in order.
  Launches take();
};
// Records a launch if there is a recording. It must not keep device memory: see readable_view().
void record(std::function<void()> launch);
// Count what the host asks of the device.
void count_launch(const std::string& name);
void count_copy(bool to_device, bool waits);
void count_wait();

}  // namespace draftsmith::standin
