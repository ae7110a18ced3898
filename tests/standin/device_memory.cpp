#include "tests/standin/device_memory.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include <sys/mman.h>
#include <unistd.h>

#include "tests/standin/standin.h"

namespace draftsmith::standin {
namespace {

constexpr size_t kCapacity = size_t{16} << 30;  // addresses; pages are taken when they are written
constexpr size_t kLeastBlock = 256;

char* map(int file, int protection) {
  void* address = mmap(nullptr, kCapacity, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (address == MAP_FAILED) throw std::runtime_error("the stand-in accelerator's memory cannot be mapped");
  return static_cast<char*>(address);
}

}  // namespace

DeviceMemory& DeviceMemory::instance() {
  static DeviceMemory* memory = new DeviceMemory;  // outlives all tensors
  return *memory;
}

DeviceMemory::DeviceMemory() {
  const int file = memfd_create("standin", 0);
  if (file < 0 || ftruncate(file, kCapacity) != 0) {
    throw std::runtime_error("the stand-in accelerator has no memory");
  }
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
  auto& spare = spare_[size];
  void* address = nullptr;
  if (!spare.empty()) {
    address = spare.back();
    spare.pop_back();
  } else {
    if (size > kCapacity - used_) throw std::runtime_error("the stand-in accelerator is out of memory");
    address = hidden_ + used_;
    used_ += size;
  }
  sizes_[address] = size;
  allocated_ += size;
  peak_ = std::max(peak_, allocated_);
  return {address, address, &release, device()};
}

void DeviceMemory::release(void* address) {
  if (address == nullptr) return;
  DeviceMemory& memory = instance();
  const std::scoped_lock lock(memory.mutex_);
  const auto block = memory.sizes_.find(address);
  memory.spare_[block->second].push_back(address);
  memory.allocated_ -= block->second;
  memory.sizes_.erase(block);
}

size_t DeviceMemory::peak() {
  const std::scoped_lock lock(mutex_);
  return peak_;
}

void DeviceMemory::reset_peak() {
  const std::scoped_lock lock(mutex_);
  peak_ = allocated_;
}

void DeviceMemory::limit(size_t bytes) {
  const std::scoped_lock lock(mutex_);
  limit_ = bytes;
}

c10::DeleterFnPtr DeviceMemory::raw_deleter() const {
  return &release;
}

void DeviceMemory::copy_data(void* to, const void* from, size_t bytes) const {
  std::memcpy(readable(to), readable(from), bytes);
}

void* DeviceMemory::readable(const void* address) const {
  if (address == nullptr) return nullptr;
  const auto offset = static_cast<size_t>(static_cast<const char*>(address) - hidden_);
  if (offset >= kCapacity) throw std::logic_error("an address outside the stand-in accelerator's memory");
  return readable_ + offset;
}

}  // namespace draftsmith::standin
