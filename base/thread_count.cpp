#include "base/thread_count.h"

#include "base/device.h"

namespace draftsmith {

ThreadCount::ThreadCount(int64_t threads) : before_(set_threads(0)) {
  set_threads(threads);
}

ThreadCount::~ThreadCount() {
  set_threads(before_);
}

}  // namespace draftsmith
