// Time to begin N samples of one prompt: processed once and shared, beside processed for every row.
//
//   build/release/bench/bench_prefill_speed [--threads N] [--samples N] [--prompt TOKENS]
//
// Shape: a Llama of d 512, 6 layers, 8 heads x 64, ff 1408, vocabulary 32,000, random weights, fp32.
#include <cstdio>
#include <cstring>
#include <string>

#include <ATen/Parallel.h>

#include "base/timing.h"
#include "infer/loop/prefill.h"
#include "model/transformer/transformer_model.h"
#include "tests/support/models.h"

namespace {

using draftsmith::infer::Row;
using draftsmith::model::TransformerConfig;
using draftsmith::model::TransformerModel;

TransformerConfig measured_config() {
  TransformerConfig config = draftsmith::model::llama_config(
      {.vocabulary = 32000, .width = 512, .heads = 8, .head_width = 64, .ff_width = 1408, .decoder_layers = 6});
  config.max_positions = 8192;
  return config;
}

// Seconds of begin_state for rows of one prompt, `shared` of them to a prompt: the best of three.
double seconds(TransformerModel& model, const std::vector<Row>& rows, int64_t shared) {
  double best = 1e9;
  for (int repetition = 0; repetition < 3; ++repetition) {
    const draftsmith::Stopwatch watch;
    const auto state = draftsmith::infer::begin_state(model, {}, rows, {rows.front().length() + 64, shared});
    best = std::min(best, watch.seconds());
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  int64_t samples = 8;
  int64_t prompt = 512;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
      at::set_num_threads(std::stoi(argv[++i]));
    } else if (std::strcmp(argv[i], "--samples") == 0 && i + 1 < argc) {
      samples = std::stoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--prompt") == 0 && i + 1 < argc) {
      prompt = std::stoi(argv[++i]);
    } else {
      std::fprintf(stderr, "usage: bench_prefill_speed [--threads N] [--samples N] [--prompt TOKENS]\n");
      return 2;
    }
  }
  TransformerModel model(measured_config(), 1);
  model.pack();
  Row row;
  for (int64_t i = 0; i < prompt; ++i) row.tokens.push_back(3 + i % 1000);
  const std::vector<Row> rows(static_cast<size_t>(samples), row);
  const double apart = seconds(model, rows, 1);
  const double shared = seconds(model, rows, samples);
  std::printf("prefill of %ld samples of a %ld-token prompt: %.1f ms shared, %.1f ms apart, ratio %.2f\n", samples,
              prompt, 1e3 * shared, 1e3 * apart, apart / shared);
  return 0;
}
