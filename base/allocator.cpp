#include "base/allocator.h"

#include <cstdlib>  // defines __GLIBC__

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace draftsmith {

void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kLargest = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kLargest);  // smaller blocks come from the heap, which the process keeps
  mallopt(M_TRIM_THRESHOLD, kLargest);
#endif
}

}  // namespace draftsmith
