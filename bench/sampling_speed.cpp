// Microseconds of what the decode loop does outside the models, for one row over a vocabulary of V: the parts of
// infer/sampling/sampling.h and the acceptance rules on a window of 4. The best of many repetitions.
//
//   OMP_NUM_THREADS=2 build/release/bench/bench_sampling_speed
#include <algorithm>
#include <cstdint>
#include <vector>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "base/aten.h"
#include "base/environment.h"
#include "base/timing.h"
#include "infer/acceptance/rejection.h"
#include "infer/acceptance/rollback.h"

namespace {

using namespace draftsmith;
using namespace draftsmith::infer;

constexpr int64_t kWindow = 4;

template <class Work>
void measure(const char* name, Work work) {
  double best = 1;
  for (int i = 0; i < 300; ++i) {
    const Stopwatch watch;
    work();
    best = std::min(best, watch.seconds());
  }
  fmt::print("  {:<36} {:8.1f} us\n", name, best * 1e6);
}

void measure_vocabulary(int64_t vocabulary) {
  fmt::print("vocabulary {}\n", vocabulary);
  const auto one = at::randn({1, vocabulary}).mul_(3);
  const auto window = at::randn({1, kWindow + 1, vocabulary}).mul_(3);
  const auto token = at::full({1}, 7, at::kLong);
  const auto chance = at::full({1}, 0.7, at::kDouble);
  const Warping plain;
  const auto q = warp(one, plain);
  measure("most_likely", [&] { most_likely(one); });
  measure("most_likely, 5 positions", [&] { most_likely(window); });
  measure("warp T=1", [&] { warp(one, plain); });
  measure("warp T=0.7", [&] { warp(one, {.temperature = 0.7}); });
  measure("warp T=1, 5 positions", [&] { warp(window, plain); });
  measure("warp T=1 top-k 50", [&] { warp(one, {.top_k = 50}); });
  measure("warp T=1 top-p 0.9", [&] { warp(one, {.top_p = 0.9}); });
  measure("draw", [&] { draw(q, chance); });
  measure("confidence", [&] { confidence(one); });
  measure("token_log_probability", [&] { token_log_probability(one, token); });
  std::vector<Row> rows(1);
  std::vector<at::Tensor> probabilities;  // the target's own: every token is kept
  for (int64_t j = 0; j < kWindow; ++j) probabilities.push_back(warp(window.select(1, j), plain));
  Verification sampled{rows,          window, at::full({1, kWindow}, 7, at::kLong), at::full({1}, kWindow, at::kLong),
                       probabilities, plain};
  RejectionAcceptance rejection;
  measure("rejection, T=1", [&] { rejection.judge(sampled); });
  Verification greedy = sampled;
  greedy.warping.temperature = 0;
  measure("rejection, T=0", [&] { rejection.judge(greedy); });
  RollbackAcceptance rollback(2, RollbackRule::kEffective);
  measure("rollback, T=0", [&] { rollback.judge(greedy); });
  measure("rollback, T=1", [&] { rollback.judge(sampled); });
}

}  // namespace

int main() {
  keep_freed_memory();
  fmt::print("{} threads\n", at::get_num_threads());
  measure_vocabulary(32128);
  measure_vocabulary(4000);
  measure_vocabulary(800);
  return 0;
}
