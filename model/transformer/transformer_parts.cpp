#include "model/transformer/transformer_parts.h"

#include "model/transformer/parameters.h"

namespace draftsmith::model {

StackInput::StackInput(const TransformerConfig& config, const std::string& stack, const at::Tensor& table,
                       const Building& building)
    : positions(table) {
  if (config.positions == Positions::kLearned) {
    positions = building.find(stack + ".positions.weight");
    first_row = config.position_offset;
  } else if (config.sinusoids_reach_end && stack == "encoder") {  // M2M-100
    positions = at::constant_pad_nd(table, {0, 0, 1, 0});         // row 0 is that of padding inside of a text
    first_row = 1;
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
  embedding_scale = config.embedding_scale;
  if (config.rounds_embedding_scale) {
    embedding_scale = at::scalar_tensor(config.embedding_scale, at::kFloat).to(dtype).item<double>();
  }
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
