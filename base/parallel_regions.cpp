#include "base/parallel_regions.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <ATen/Parallel.h>

#if defined(_OPENMP) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define DRAFTSMITH_REGIONS 1
#include <dlfcn.h>
#endif

namespace draftsmith {

#ifdef DRAFTSMITH_REGIONS
namespace {

using Region = void(void*);

// OpenMP's own entry points.
struct OwnOpenMp {
  template <class Function>
  static Function* find(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
  }

  void (*parallel)(Region*, void*, unsigned,
                   unsigned) = find<void(Region*, void*, unsigned, unsigned)>("GOMP_parallel");
  int (*thread_num)() = find<int()>("omp_get_thread_num");
  int (*num_threads)() = find<int()>("omp_get_num_threads");
  int (*in_parallel)() = find<int()>("omp_in_parallel");
  int (*max_threads)() = find<int()>("omp_get_max_threads");
  void (*barrier)() = find<void()>("GOMP_barrier");
  bool (*single)() = find<bool()>("GOMP_single_start");
  unsigned (*sections)(unsigned) = find<unsigned(unsigned)>("GOMP_sections_start");
  bool (*loop)(long, long, long, long, long*,
               long*) = find<bool(long, long, long, long, long*, long*)>("GOMP_loop_dynamic_start");
  bool (*ordered_loop)(long, long, long, long, long*,
                       long*) = find<bool(long, long, long, long, long*, long*)>("GOMP_loop_ordered_dynamic_start");
};

const OwnOpenMp& own() {
  static const OwnOpenMp found;
  return found;
}

// Knowledge of a region's code. Code that was never run may wait for other threads inside.
enum class Kind : uint8_t { kUnknown, kIndependent, kWaits };

// The kinds of all regions' codes: a table that only grows. One that is full forgets nothing and learns nothing.
class Kinds {
 public:
  Kind of(Region* code) {
    const Entry* entry = find(code);
    return entry == nullptr ? Kind::kWaits : entry->kind.load(std::memory_order_acquire);
  }

  void learn(Region* code, Kind kind) {
    Entry* entry = find(code);
    if (entry == nullptr) return;
    Kind unknown = Kind::kUnknown;
    if (kind == Kind::kWaits) {
      entry->kind.store(kind, std::memory_order_release);
    } else {
      entry->kind.compare_exchange_strong(unknown, kind, std::memory_order_acq_rel);
    }
  }

 private:
  static constexpr size_t kBits = 12;

  struct Entry {
    std::atomic<Region*> code{nullptr};
    std::atomic<Kind> kind{Kind::kUnknown};
  };

  Entry* find(Region* code) {
    const size_t first = (reinterpret_cast<uintptr_t>(code) * 0x9e3779b97f4a7c15U) >> (64 - kBits);
    for (size_t i = 0; i < entries_.size(); ++i) {
      Entry& entry = entries_[(first + i) % entries_.size()];
      Region* seen = entry.code.load(std::memory_order_acquire);
      if (seen == code) return &entry;
      if (seen != nullptr) continue;
      if (entry.code.compare_exchange_strong(seen, code, std::memory_order_acq_rel) || seen == code) return &entry;
    }
    return nullptr;
  }

  std::array<Entry, size_t{1} << kBits> entries_;
};

Kinds kinds;
std::atomic<int> worker_limit{0};

// The logical thread that this thread runs; -1: none.
thread_local int logical_thread = -1;
thread_local int logical_threads = 0;
// The region that this thread has begun with all of OpenMP's threads.
thread_local Region* begun = nullptr;

// Runs the code as one logical thread after the other.
void run_logical(Region* code, void* data, int first, int end, int all) {
  const int outer = logical_thread, outer_all = logical_threads;
  logical_threads = all;
  for (int i = first; i < end; ++i) {
    logical_thread = i;
    code(data);
  }
  logical_thread = outer;
  logical_threads = outer_all;
}

// A region whose logical threads are fewer threads' work.
struct SharedOut {
  Region* code;
  void* data;
  int all;
};

void run_share(void* data) {
  const auto& region = *static_cast<const SharedOut*>(data);
  const int worker = own().thread_num(), workers = own().num_threads();
  run_logical(region.code, region.data, worker * region.all / workers, (worker + 1) * region.all / workers, region.all);
}

// Runs the code by all of OpenMP's threads, and learns whether they wait for each other.
void run_by_all(Region* code, void* data, unsigned threads, unsigned flags) {
  Region* const outer = begun;
  begun = code;
  own().parallel(code, data, threads, flags);
  begun = outer;
  kinds.learn(code, Kind::kIndependent);
}

// Called where a region's code waits for its other threads.
void note_waiting() {
  if (logical_thread >= 0) {
    std::fputs("draftsmith: internal error: a parallel region waits for threads only sometimes\n", stderr);
    std::abort();
  }
  if (begun != nullptr) kinds.learn(begun, Kind::kWaits);
}

}  // namespace

// Threads of regions that name their number, as MKL's and oneDNN's do, may wait for each other by spinning, which
// nothing shows. at::parallel_for() and LibTorch's operators name none.
extern "C" {

void GOMP_parallel(Region* code, void* data, unsigned threads, unsigned flags) {
  if (logical_thread >= 0) return run_logical(code, data, 0, 1, 1);  // regions within regions have one thread
  if (threads != 0 || own().in_parallel() != 0) return own().parallel(code, data, threads, flags);
  const int workers = worker_limit.load(std::memory_order_relaxed);
  const int all = own().max_threads();
  if (workers == 0 || workers >= all || kinds.of(code) != Kind::kIndependent) {
    return run_by_all(code, data, threads, flags);
  }
  if (workers == 1) return run_logical(code, data, 0, all, all);
  SharedOut region{code, data, all};
  own().parallel(&run_share, &region, static_cast<unsigned>(workers), flags);
}

int omp_get_thread_num() noexcept {
  return logical_thread >= 0 ? logical_thread : own().thread_num();
}

int omp_get_num_threads() noexcept {
  return logical_thread >= 0 ? logical_threads : own().num_threads();
}

int omp_in_parallel() noexcept {
  return logical_thread >= 0 ? 1 : own().in_parallel();
}

void GOMP_barrier() {
  note_waiting();
  own().barrier();
}

bool GOMP_single_start() {
  note_waiting();
  return own().single();
}

unsigned GOMP_sections_start(unsigned count) {
  note_waiting();
  return own().sections(count);
}

bool GOMP_loop_dynamic_start(long start, long end, long step, long chunk, long* first, long* last) {
  note_waiting();
  return own().loop(start, end, step, chunk, first, last);
}

bool GOMP_loop_ordered_dynamic_start(long start, long end, long step, long chunk, long* first, long* last) {
  note_waiting();
  return own().ordered_loop(start, end, step, chunk, first, last);
}

}  // extern "C"

void limit_region_workers(int64_t workers) {
  worker_limit.store(static_cast<int>(std::max<int64_t>(0, workers)), std::memory_order_relaxed);
}

int64_t region_workers() {
  return worker_limit.load(std::memory_order_relaxed);
}

bool handles_regions() {
  // LibTorch's library finds the first definition in the process.
  return dlsym(RTLD_DEFAULT, "GOMP_parallel") == reinterpret_cast<void*>(&GOMP_parallel);
}

#else

void limit_region_workers(int64_t /*workers*/) {}

int64_t region_workers() {
  return 0;
}

bool handles_regions() {
  return false;
}

#endif

}  // namespace draftsmith
