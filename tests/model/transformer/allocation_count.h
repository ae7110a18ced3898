// Counts of memory allocations, for work that should take no memory.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace draftsmith {

struct AllocationCount {
  int64_t calls = 0;
  int64_t bytes = 0;  // freed again or not; of aligned blocks with their padding
};

// Does the work. Returns the calls of malloc, new and their like that all threads made meanwhile. TCMalloc's hooks
// count them: returns nothing, and does no work, if the process runs without TCMalloc. Errors: std::logic_error for a
// count inside another.
std::optional<AllocationCount> count_allocations(const std::function<void()>& work);

}  // namespace draftsmith
