// Training that slows down in proportion beside busy processes.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/divided_products.h"

namespace draftsmith {

// As long as it lives, LibTorch's operators on CPUs are run by as many threads as have a processor beside other
// processes' work, at most at::get_num_threads() at the start. Looks a few times a second. Results are the same to the
// bit whatever the load (base/parallel_regions.h); they depend on the number of threads. For one at a time; a second
// one leaves the number of threads to the first.
class ConsiderateThreads {
 public:
  ConsiderateThreads();
  ~ConsiderateThreads();
  ConsiderateThreads(const ConsiderateThreads&) = delete;
  ConsiderateThreads& operator=(const ConsiderateThreads&) = delete;

 private:
  void watch(int64_t threads);

  DividedProducts products_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool over_ = false;
  bool watches_ = false;
  std::thread watcher_;
};

}  // namespace draftsmith
