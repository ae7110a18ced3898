// Models with weights, a router of one, and decoding with them, for tests of windows that adapt.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "infer/drafters/model_drafter.h"
#include "infer/generator.h"
#include "model/models/router.h"
#include "tests/support/models.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/tandem_pairs.h"
#include "tests/support/token_ids.h"

namespace draftsmith::infer::testing {

// A drafter with weights, for routers to be bound to: of equal ones, disturbed by `noise`.
inline std::unique_ptr<model::TransformerModel> random_model(int64_t vocabulary, double noise, at::ScalarType dtype) {
  const auto config = model::t5_config({.vocabulary = vocabulary, .head_width = 6, .ff_width = 24});
  auto made = std::make_unique<model::TransformerModel>(config, 1);
  make_lively(*made, 4, 1, 2.5, noise);
  made->to(at::kCPU, dtype);
  return made;
}

inline model::Router random_router(const model::TransformerModel& drafter, uint64_t seed = 2) {
  model::RouterConfig config{.top_k = 3, .hidden = 16};
  config.width = drafter.config().width;
  config.vocabulary = drafter.config().vocabulary;
  config.embedding_scale = 3;
  config.drafter_hash = std::string(64, '0');
  return {config, seed};
}

// Target and drafter in fp64, where exact methods are exact.
struct Pair {
  std::unique_ptr<model::TransformerModel> target = random_model(24, 0, at::kDouble);
  std::unique_ptr<model::TransformerModel> drafter = random_model(24, 0.25, at::kDouble);
  model::RouterPredictor router{random_router(*drafter), *drafter};

  GenerationModels models() const {
    return {.target = target.get(), .drafter = as_drafter(*drafter), .router = &router};
  }
};

inline DecodeOptions assisted(const std::string& window, int64_t batch) {
  return {.method = "assisted", .window_rule = window, .max_new_tokens = 18, .batch_size = batch};
}

inline std::vector<Ids> greedy(const Pair& pair) {
  return ids_of(Generator(pair.models(), {.max_new_tokens = 18}).generate(sources()));
}

}  // namespace draftsmith::infer::testing
