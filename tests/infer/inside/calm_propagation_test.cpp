// What a row that leaves early writes for the layers above, and what later tokens make of it: against the layers'
// arithmetic written out position by position (GPT-2's: layer norms, learned positions, biases), in fp64.
#include <cmath>

#include <gtest/gtest.h>

#include "infer/inside/calm.h"
#include "model/transformer/decoder_state.h"
#include "tests/infer/inside/calm_fixtures.h"
#include "tests/model/models/tandem_passes.h"
#include "tests/support/batches.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::infer::testing {
namespace {

// Keys and values of one layer, a vector [H*K] for each position.
struct HandCache {
  std::vector<at::Tensor> keys;
  std::vector<at::Tensor> values;
};

class HandModel {
 public:
  explicit HandModel(const model::TransformerModel& model) : config_(model.config()), own_(model.parameters()) {}

  at::Tensor embed(int64_t token, int64_t position) const {
    return own_.at("embedding.weight")[token] + own_.at("positions.weight")[position];
  }

  // As if `x` [D] were the layer's input at the next position.
  void write(int64_t layer, const at::Tensor& x, HandCache& cache) const {
    const std::string name = "decoder." + std::to_string(layer) + ".self_attention";
    const at::Tensor normed = norm(name + ".norm", x);
    cache.keys.push_back(linear(name + ".key", normed));
    cache.values.push_back(linear(name + ".value", normed));
  }

  // A layer at the last position of the cache, whose keys and values are those of `x`.
  at::Tensor run(int64_t layer, const at::Tensor& x, const HandCache& cache) const {
    const std::string block = "decoder." + std::to_string(layer);
    const at::Tensor query =
        linear(block + ".self_attention.query", norm(block + ".self_attention.norm", x)) * config_.attention_scale;
    std::vector<at::Tensor> heads;
    for (int64_t h = 0; h < config_.heads; ++h) {
      const auto part = [&](const at::Tensor& all) {
        return all.narrow(0, h * config_.head_width, config_.head_width);
      };
      double total = 0;
      at::Tensor sum = at::zeros({config_.head_width}, at::kDouble);
      for (size_t j = 0; j < cache.keys.size(); ++j) {
        const double weight = std::exp(part(query).dot(part(cache.keys[j])).item<double>());
        total += weight;
        sum += weight * part(cache.values[j]);
      }
      heads.push_back(sum / total);
    }
    const at::Tensor attended = x + linear(block + ".self_attention.output", at::cat(heads));
    const at::Tensor inner = linear(block + ".feed_forward.up", norm(block + ".feed_forward.norm", attended));
    return attended + linear(block + ".feed_forward.down", inner.clamp_min(0));
  }

  at::Tensor logits(const at::Tensor& hidden) const {
    return own_.at("embedding.weight").matmul(norm("decoder.final_norm", hidden));
  }

 private:
  at::Tensor norm(const std::string& name, const at::Tensor& x) const {
    const at::Tensor centred = x - x.mean();
    return centred / (centred.square().mean() + config_.norm_epsilon).sqrt() * own_.at(name + ".weight") +
           own_.at(name + ".bias");
  }
  at::Tensor linear(const std::string& name, const at::Tensor& x) const {
    return own_.at(name + ".weight").matmul(x) + own_.at(name + ".bias");
  }

  const model::TransformerConfig& config_;
  const std::map<std::string, at::Tensor>& own_;
};

std::unique_ptr<model::TransformerModel> small_model(int64_t layers) {
  model::TransformerConfig config = model::tiny_gpt2();
  config.decoder_layers = layers;
  config.activation = model::Activation::kRelu;
  config.eos = {};
  auto made = model::varied_model(config, 5);
  made->requires_grad(false);
  return made;
}

// Keys or values of a state's first row, as the hand-made ones. [T,H*K]
at::Tensor flat(const at::Tensor& heads) {
  return heads[0].transpose(0, 1).flatten(1);
}

class CalmPropagation : public ::testing::TestWithParam<int64_t> {};

// Token 0 leaves at layer 1, token 1 runs through all layers, and so does token 2 in a step of the model itself.
TEST_P(CalmPropagation, EqualsTheLayersWrittenOut) {
  constexpr int64_t kPrompt = 11;
  const int64_t layers = GetParam();
  const auto target = small_model(layers);
  const HandModel hand(*target);
  DecodeSettings settings;
  settings.warping.temperature = 0;
  PhaseTimer timer(at::kCPU);

  RowBatch batch = begin_rows(*target, {.sources = {{kPrompt}}, .limit = 1, .capacity = 3}, 0, 1);
  decode_calm(*target, nullptr, {ExitMeasure::kSaturation, 0, 0}, settings, batch, timer);
  Row row = batch.finished.front();
  batch.finished.clear();
  row.finished = false;
  row.limit = 2;
  batch.rows = {row};
  decode_calm(*target, nullptr, {ExitMeasure::kSaturation, 2, 0}, settings, batch, timer);
  row = batch.finished.front();
  ASSERT_EQ(row.emitted(), 2);

  std::vector<HandCache> caches(static_cast<size_t>(layers));
  std::vector<int64_t> tokens{kPrompt};
  at::Tensor logits;
  for (int64_t t = 0; t < 3; ++t) {
    at::Tensor x = hand.embed(tokens.back(), t);
    for (int64_t i = 0; i < layers; ++i) {
      HandCache& cache = caches[static_cast<size_t>(i)];
      hand.write(i, x, cache);
      const bool runs = t > 0 || i == 0;  // token 0 left: what it had at layer 1 goes up
      if (runs) x = hand.run(i, x, cache);
    }
    logits = hand.logits(x);
    if (t < 2) tokens.push_back(logits.argmax().item<int64_t>());
  }

  EXPECT_EQ(row.tokens, tokens);
  const auto step = target->step(model::step_input({{row.tokens.back()}}), *batch.state);
  EXPECT_LT(difference(step.logits[0][0], logits), 1e-11);
  const auto& state = dynamic_cast<const model::DecoderState&>(*batch.state);
  for (int64_t i = 0; i < layers; ++i) {
    const HandCache& cache = caches[static_cast<size_t>(i)];
    EXPECT_LT(difference(flat(state.keys(i)), at::stack(cache.keys)), 1e-11) << "layer " << i;
    EXPECT_LT(difference(flat(state.values(i)), at::stack(cache.values)), 1e-11) << "layer " << i;
  }
}

// In two layers the state that goes up is what the upper one would have read; from the third on it is another.
TEST(CalmPropagation, IsNotWhatTheLayersWouldHaveWritten) {
  const auto target = small_model(3);
  DecodeSettings settings;
  settings.warping.temperature = 0;
  PhaseTimer timer(at::kCPU);
  const PlainRows rows{.sources = {{11}}, .limit = 1};
  RowBatch early = begin_rows(*target, rows, 0, 1);
  RowBatch full = begin_rows(*target, rows, 0, 1);
  decode_calm(*target, nullptr, {ExitMeasure::kSaturation, 0, 0}, settings, early, timer);
  decode_calm(*target, nullptr, {ExitMeasure::kSaturation, 2, 0}, settings, full, timer);
  const auto keys = [](const RowBatch& batch, int64_t layer) {
    return dynamic_cast<const model::DecoderState&>(*batch.state).keys(layer);
  };
  EXPECT_EQ(difference(keys(early, 1), keys(full, 1)), 0);
  EXPECT_GT(difference(keys(early, 2), keys(full, 2)), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Layers, CalmPropagation, ::testing::Values(2, 3));

}  // namespace
}  // namespace draftsmith::infer::testing
