#include "base/considerate_threads.h"

#include <atomic>
#include <chrono>

#include <ATen/Parallel.h>

#include "base/environment.h"
#include "base/parallel_regions.h"
#include "base/processor_use.h"

namespace draftsmith {

namespace {

constexpr std::chrono::milliseconds kLookEvery{200};

std::atomic<bool> is_watched{false};

}  // namespace

ConsiderateThreads::ConsiderateThreads() {
  const int64_t threads = at::get_num_threads();
  if (threads < 2 || !handles_regions() || is_watched.exchange(true)) return;
  watches_ = true;
  watcher_ = std::thread([this, threads] { watch(threads); });
}

ConsiderateThreads::~ConsiderateThreads() {
  if (!watches_) return;
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ends_.notify_one();
  watcher_.join();
  limit_region_workers(0);
  is_watched.store(false);
}

void ConsiderateThreads::watch(int64_t threads) {
  std::optional<ProcessorTimes> before = processor_times();
  std::unique_lock lock(mutex_);
  while (before && !ends_.wait_for(lock, kLookEvery, [this] { return over_; })) {
    const std::optional<ProcessorTimes> now = processor_times();
    if (now) limit_region_workers(threads_with_processor(*before, *now, cpu_cores(), threads));
    before = now;
  }
}

}  // namespace draftsmith
