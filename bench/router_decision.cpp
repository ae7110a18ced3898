// What a router's decision costs on a CPU: features (entropy, top k) and the perceptron, with and without the table of
// embedding products, beside the argmax that a greedy drafter pays anyway.
//
//   build/release/bench/bench_router_decision
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/device.h"
#include "base/timing.h"
#include "infer/sampling/draft_features.h"
#include "infer/sampling/row_kernels.h"
#include "infer/windows/router.h"
#include "tests/support/models.h"

namespace {

using namespace draftsmith;

// Microseconds of a call, the least of several rounds.
template <class Call>
double microseconds(const Call& call) {
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    constexpr int kCalls = 200;
    const Stopwatch watch;
    for (int i = 0; i < kCalls; ++i) call();
    best = std::min(best, watch.seconds() / kCalls * 1e6);
  }
  return best;
}

void measure(int64_t vocabulary, int64_t width) {
  const model::TransformerConfig config =
      model::t5_config({.vocabulary = vocabulary, .width = width, .heads = 1, .ff_width = 8, .decoder_layers = 1});
  const model::TransformerModel drafter(config, 1);
  model::RouterConfig shape;
  shape.width = width;
  shape.vocabulary = vocabulary;
  const model::Router router(shape, 1);
  const Stopwatch loading;
  const model::RouterPredictor fast(router, drafter);
  const double seconds = loading.seconds();
  const model::RouterPredictor plain(router, drafter, 0);
  infer::RouterWindow window(fast, 0.8, 16);
  infer::RouterWindow slow(plain, 0.8, 16);
  const at::Tensor logits = at::randn({1, vocabulary}, at::kFloat) * 3;
  window.begin(std::vector<infer::Row>(1));
  slow.begin(std::vector<infer::Row>(1));
  const double decide = microseconds([&] { window.go_on({logits, {}}); });
  const double without_table = microseconds([&] { slow.go_on({logits, {}}); });
  const double argmax = microseconds([&] { infer::row_argmax(logits.const_data_ptr<float>(), vocabulary); });
  fmt::print(
      "V {:7} D {:4}: {:7.1f} us a decision ({} table, {:.2f} s to make), {:7.1f} us without; argmax {:5.1f} us\n",
      vocabulary, width, decide, fast.has_table() ? "with" : "no", seconds, without_table, argmax);
}

}  // namespace

int main() {
  set_threads(1);
  const at::NoGradGuard no_gradients;
  measure(4000, 256);
  measure(32128, 512);
  measure(250112, 512);
}
