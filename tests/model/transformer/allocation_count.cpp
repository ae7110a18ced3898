#include "tests/model/transformer/allocation_count.h"

#include <atomic>
#include <stdexcept>

#include <dlfcn.h>

namespace draftsmith {

namespace {

using Hook = void (*)(const void* block, size_t bytes);
using ChangeHooks = int (*)(Hook);

// A hook takes no argument of ours, so what it counts is the process's own.
std::atomic<int64_t> calls{0};
std::atomic<int64_t> bytes_asked{0};
std::atomic<bool> counting{false};

void count(const void* /*block*/, size_t bytes) {
  calls.fetch_add(1, std::memory_order_relaxed);
  bytes_asked.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
}

// Returns a function of TCMalloc, which may be linked or preloaded; null without it.
ChangeHooks find(const char* name) {
  return reinterpret_cast<ChangeHooks>(dlsym(RTLD_DEFAULT, name));
}

// Keeps the hook in place while it lives.
class Counting {
 public:
  Counting(ChangeHooks add, ChangeHooks remove) : remove_(remove) {
    if (counting.exchange(true)) throw std::logic_error("allocations are being counted already");
    calls = 0;
    bytes_asked = 0;
    if (add(count) == 0) {
      counting = false;
      throw std::logic_error("TCMalloc has no room for another hook");
    }
  }
  ~Counting() {
    remove_(count);
    counting = false;
  }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;

 private:
  ChangeHooks remove_;
};

}  // namespace

std::optional<AllocationCount> count_allocations(const std::function<void()>& work) {
  static const ChangeHooks add = find("MallocHook_AddNewHook");
  static const ChangeHooks remove = find("MallocHook_RemoveNewHook");
  if (add == nullptr || remove == nullptr) return std::nullopt;
  const Counting hook(add, remove);
  work();
  return AllocationCount{calls, bytes_asked};
}

}  // namespace draftsmith
