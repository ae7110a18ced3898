// Number of threads for a part of a program.
#pragma once

#include <cstdint>

namespace draftsmith {

// While it exists, LibTorch works with so many threads on the CPU, as by set_threads() (base/device.h); 0 changes
// nothing. Its destructor restores the number before.
class ThreadCount {
 public:
  explicit ThreadCount(int64_t threads);
  ~ThreadCount();
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int64_t before_;
};

}  // namespace draftsmith
