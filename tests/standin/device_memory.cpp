#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "tests/standin/internals.h"
#include "tests/standin/standin.h"

namespace draftsmith::standin {
namespace {

constexpr size_t kCapacity = size_t{16} << 30;  // addresses; pages are taken when they are written
constexpr size_t kLeastBlock = 256;

char* map(int file, int protection) {
  void* address = mmap(nullptr, kCapacity, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  TORCH_CHECK(address != MAP_FAILED, "the stand-in accelerator's memory cannot be mapped");
  return static_cast<char*>(address);
}

}  // namespace

DeviceMemory& DeviceMemory::instance() {
  static DeviceMemory* memory = new DeviceMemory;  // outlives all tensors
  return *memory;
}

void DeviceMemory::map_region() {
  const int file = memfd_create("standin", 0);
  TORCH_CHECK(file >= 0 && ftruncate(file, kCapacity) == 0, "the stand-in accelerator has no memory");
  hidden_ = map(file, PROT_NONE);
  readable_ = map(file, PROT_READ | PROT_WRITE);
  close(file);
}

c10::DataPtr DeviceMemory::allocate(size_t bytes) {
  if (bytes == 0) return {nullptr, nullptr, &release, device()};
  const size_t size = std::bit_ceil(std::max(bytes, kLeastBlock));
  const std::scoped_lock lock(mutex_);
  TORCH_CHECK_WITH(OutOfMemoryError, limit_ == 0 || allocated_ + size <= limit_,
                   "the stand-in accelerator is out of memory: ", size, " bytes wanted, ", allocated_, " of ", limit_,
                   " in use");
  auto& spare = (recording_ == nullptr ? spare_ : recording_->spare_)[size];
  void* address = nullptr;
  if (spare.empty()) {
    address = take_from_region(size);
  } else {
    address = spare.back();
    spare.pop_back();
  }
  blocks_[address] = {size, recording_};
  allocated_ += size;
  peak_ = std::max(peak_, allocated_);
  return {address, address, &release, device()};
}

void* DeviceMemory::take_from_region(size_t size) {
  if (hidden_ == nullptr) map_region();
  TORCH_CHECK(size <= kCapacity - used_, "the stand-in accelerator is out of memory");
  char* address = hidden_ + used_;
  used_ += size;
  overwrite(address, size);
  return address;
}

void DeviceMemory::release(void* address) {
  if (address == nullptr) return;
  DeviceMemory& memory = instance();
  const std::scoped_lock lock(memory.mutex_);
  const auto found = memory.blocks_.find(address);
  const auto [size, pool] = found->second;
  memory.overwrite(address, size);
  (pool == nullptr ? memory.spare_ : pool->spare_)[size].push_back(address);
  memory.allocated_ -= size;
  memory.blocks_.erase(found);
}

void DeviceMemory::overwrite(const void* address, size_t size) const {
  std::memset(readable(address), 0xFF, size);
}

void DeviceMemory::begin_recording(MemoryPool& pool) {
  const std::scoped_lock lock(mutex_);
  recording_ = &pool;
  for (const auto& [address, block] : blocks_) {
    before_[address].assign(static_cast<const char*>(readable(address)), block.size);
  }
}

void DeviceMemory::end_recording() {
  const std::scoped_lock lock(mutex_);
  for (const auto& [address, block] : blocks_) {
    const auto kept = before_.find(address);
    if (kept == before_.end()) {
      overwrite(address, block.size);
    } else {
      std::memcpy(readable(address), kept->second.data(), block.size);
    }
  }
  before_.clear();
  recording_ = nullptr;
}

MemoryPool::~MemoryPool() {
  DeviceMemory::instance().give_up(*this);
}

// Gives a pool's memory to all: what is spare now, and what tensors still have later.
void DeviceMemory::give_up(MemoryPool& pool) {
  const std::scoped_lock lock(mutex_);
  for (const auto& [size, addresses] : pool.spare_) {
    for (void* address : addresses) {
      overwrite(address, size);  // replays have written to it since it was released
      spare_[size].push_back(address);
    }
  }
  for (auto& [address, block] : blocks_) {
    if (block.pool == &pool) block.pool = nullptr;
  }
}

void DeviceMemory::copy_data(void* to, const void* from, size_t bytes) const {
  std::memcpy(readable(to), readable(from), bytes);
}

void* DeviceMemory::readable(const void* address) const {
  if (address == nullptr) return nullptr;
  const auto offset = static_cast<size_t>(static_cast<const char*>(address) - hidden_);
  if (hidden_ == nullptr || offset >= kCapacity) throw std::logic_error("an address outside the stand-in's memory");
  return readable_ + offset;
}

size_t take_peak_bytes() {
  DeviceMemory& memory = DeviceMemory::instance();
  const std::scoped_lock lock(memory.mutex_);
  return std::exchange(memory.peak_, memory.allocated_);
}

void limit_bytes(size_t bytes) {
  DeviceMemory& memory = DeviceMemory::instance();
  const std::scoped_lock lock(memory.mutex_);
  memory.limit_ = bytes;
}

}  // namespace draftsmith::standin
