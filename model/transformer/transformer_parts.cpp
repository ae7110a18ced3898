#include "model/transformer/transformer_parts.h"

#include <algorithm>
#include <cmath>

#include "model/transformer/parameters.h"

namespace draftsmith::model {

namespace {

// Returns the sinusoids of all positions, fp32: sines of all pairs, then cosines, of the wavelengths 2 pi 10^(8 i / D).
// They are computed in fp64, as in Marian; in M2M-100 i rises to D/2 at the last pair, and all is fp32. [P,D]
at::Tensor sinusoids(const TransformerConfig& config) {
  constexpr double kLongest = 10000.0;
  const int64_t width = config.width;
  const int64_t pairs = width / 2;
  const at::ScalarType type = config.sinusoids_reach_end ? at::kFloat : at::kDouble;
  const at::Tensor position =
      at::arange(config.position_offset, config.position_offset + config.max_positions, type).unsqueeze(1);
  if (config.sinusoids_reach_end) {
    const double step = std::log(kLongest) / static_cast<double>(std::max<int64_t>(1, pairs - 1));
    const at::Tensor angle = position * at::exp(at::arange(pairs, type) * -step);  // [P,D/2]
    return at::constant_pad_nd(at::cat({angle.sin(), angle.cos()}, 1), {0, width % 2});
  }
  const at::Tensor exponent = 2 * at::arange((width + 1) / 2, type) / static_cast<double>(width);
  const at::Tensor angle = position / at::pow(kLongest, exponent);  // an odd width has one more sine
  return at::cat({angle.sin(), angle.narrow(1, 0, pairs).cos()}, 1).to(at::kFloat);
}

}  // namespace

StackInput::StackInput(const TransformerConfig& config, const std::string& stack, const at::Tensor& sinusoids,
                       const Building& building)
    : positions(sinusoids) {
  if (config.positions == Positions::kLearned) {
    positions = building.find(stack + ".positions.weight");
    first_row = config.position_offset;
  }
  if (config.embedding_norm) {
    const std::string prefix = stack + ".embedding_norm";
    norm.emplace(config.norm, config.norm_epsilon, building.find(prefix + ".weight"), building.find(prefix + ".bias"));
  }
}

TransformerParts::TransformerParts(const TransformerConfig& config, const Building& building)
    : decoder(config, true, building) {
  const std::string weight = head_parameter(config);
  const at::Tensor bias = config.head_bias ? building.find("head.bias") : at::Tensor();
  if (building.arena != nullptr) {
    head = Linear(building.matrix(weight), bias);
    head.pack(*building.arena);
    // A head that keeps its plain weight shares it with the embedding.
    const bool shared = config.tied_head && !head.weight().is_meta();
    embedding = shared ? head.weight() : building.source.unconverted("embedding.weight");
  } else {
    embedding = building.find("embedding.weight");
    head = Linear(config.tied_head ? embedding : building.find(weight), bias);
  }
  vocabulary_rows = VocabularyRows(config, embedding.device());
  const at::Tensor norm = building.find("decoder.0.feed_forward.norm.weight");
  dtype = norm.scalar_type();
  building.source.built();
  if (config.has_encoder()) {
    encoder.emplace(config, false, building);
  } else if (config.encoder_decoder) {
    encoder_projection = Linear(building.matrix("encoder_projection.weight"));
    if (building.arena != nullptr) encoder_projection.pack(*building.arena);
  }
  at::Tensor table;
  if (config.positions == Positions::kSinusoid) {
    table = sinusoids(config).to(norm.options().requires_grad(false));
  }
  if (encoder) encoder_input = StackInput(config, "encoder", table, building);
  decoder_input = StackInput(config, "decoder", table, building);
  if (building.arena != nullptr) keep_first_positions();
}

void TransformerParts::keep_first_positions() {
  const at::NoGradGuard no_gradients;
  if (embedding.is_cpu()) first_positions = decoder.position_tables(kFirstPositions);
}

}  // namespace draftsmith::model
