// Speed of one cached decoder step, random weights, by the number of tokens L it processes; and of greedy decoding.
//
//   build/release/bench/bench_step_speed [--threads N] [--plain] [--greedy]
//
// Shapes: T5-small (d 512, 6+6 layers, 8 heads x 64, ff 2048) and a drafter of it (d 256, 2+2 layers, 4 heads x 64, ff
// 1024), vocabulary 32,128, and a narrow one of a quickstart's kind; fp32, batch 1, 32 source tokens. --plain: no
// packed weights.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

#include <ATen/Parallel.h>

#include "infer/costs/step_costs.h"
#include "model/transformer/transformer_model.h"
#include "tests/support/models.h"

namespace {

using draftsmith::model::Logits;
using draftsmith::model::StepInput;
using draftsmith::model::TransformerConfig;
using draftsmith::model::TransformerModel;

struct Shape {
  const char* name;
  int64_t width;
  int64_t layers;
  int64_t heads;
  int64_t vocabulary;
};

TransformerConfig config_of(const Shape& shape) {
  TransformerConfig config = draftsmith::model::t5_config({.vocabulary = shape.vocabulary,
                                                           .width = shape.width,
                                                           .heads = shape.heads,
                                                           .head_width = 64,
                                                           .ff_width = 4 * shape.width,
                                                           .encoder_layers = shape.layers,
                                                           .decoder_layers = shape.layers});
  config.tied_head = true;
  return config;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

StepInput input_of(int64_t tokens) {
  StepInput input;
  input.tokens = at::full({1, tokens}, 17, at::kLong);
  input.new_tokens = {tokens};
  return input;
}

// Tokens a second of `new_tokens` greedy steps, encoder and begin included; the best of some repetitions.
double greedy_speed(TransformerModel& model, int64_t new_tokens) {
  const draftsmith::model::TokenBatch source{at::full({1, 32}, 11, at::kLong), {32}};
  double best = 0;
  for (int repetition = 0; repetition < 5; ++repetition) {
    const auto start = std::chrono::steady_clock::now();
    const auto state = model.begin(model.encode(source), new_tokens + 1);
    StepInput input = input_of(1);
    for (int64_t i = 0; i < new_tokens; ++i) {
      input.tokens = model.step(input, *state).logits.argmax(-1);
    }
    best = std::max(best, static_cast<double>(new_tokens) / seconds_since(start));
  }
  return best;
}

// Milliseconds of a step of L tokens after 32 others: the best of some repetitions.
double step_milliseconds(TransformerModel& model, int64_t tokens, Logits logits) {
  draftsmith::infer::TimedModel step(model, draftsmith::infer::random_context(model.info(), {}), 32);
  double best = 1e9;
  for (int repetition = 0; repetition < 30; ++repetition) {
    step.go_back();
    best = std::min(best, step.run(tokens, logits));
  }
  return 1e3 * best;
}

void measure(const Shape& shape, bool pack, bool greedy_only) {
  TransformerModel model(config_of(shape), 1);
  if (pack) {
    model.pack();
  }
  std::printf("%s: greedy %.0f tokens/s\n", shape.name, greedy_speed(model, 64));
  if (greedy_only) {
    return;
  }
  for (const int64_t tokens : {1, 2, 3, 4, 5, 6, 8, 11, 13}) {
    std::printf("  L %2ld: %.3f ms, without logits %.3f ms\n", tokens, step_milliseconds(model, tokens, Logits::kAll),
                step_milliseconds(model, tokens, Logits::kNone));
  }
}

}  // namespace

int main(int argc, char** argv) {
  bool pack = true;
  bool greedy_only = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--plain") == 0) {
      pack = false;
    } else if (std::strcmp(argv[i], "--greedy") == 0) {
      greedy_only = true;
    } else if (std::strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
      at::set_num_threads(std::stoi(argv[++i]));
    } else {
      std::fprintf(stderr, "usage: bench_step_speed [--threads N] [--plain] [--greedy]\n");
      return 2;
    }
  }
  measure({"t5-small shape, d 512, 6+6", 512, 6, 8, 32128}, pack, greedy_only);
  measure({"drafter shape, d 256, 2+2", 256, 2, 4, 32128}, pack, greedy_only);
  measure({"quickstart shape, d 192, 8+8, V 4000", 192, 8, 3, 4000}, pack, greedy_only);
  return 0;
}
