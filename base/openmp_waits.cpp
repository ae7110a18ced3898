#include "base/openmp_waits.h"

#include <cstdlib>

#ifdef _OPENMP
#include <omp.h>
#endif
#include <semaphore>
#include <thread>

namespace draftsmith {

namespace {

bool is_chosen_by_user() {
  return std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr;
}

#ifdef _OPENMP
// GNU's OpenMP waits briefly while it manages more threads than there are processors. It has no other switch once a
// program runs. So this thread keeps a pool of that many, which sleep.
void keep_pool(std::binary_semaphore& made) {
#pragma omp parallel num_threads(omp_get_num_procs() + 1)
  {}
  made.release();
  static std::binary_semaphore never(0);
  never.acquire();
}
#endif

}  // namespace

void shorten_openmp_waits() {
#if defined(_OPENMP) && defined(__GNUC__) && !defined(__clang__)
  static const bool done = [] {
    if (is_chosen_by_user()) return false;
    static std::binary_semaphore made(0);
    std::thread([] { keep_pool(made); }).detach();
    made.acquire();
    return true;
  }();
  static_cast<void>(done);
#endif
}

}  // namespace draftsmith
