#include "train/memory.h"

#include <cstdlib>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace draftsmith::train {

void keep_freed_memory() {
#if defined(__GLIBC__)
  constexpr int kNeverTrim = -1;
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, kNeverTrim);
#endif
}

}  // namespace draftsmith::train
