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
  const at::Tensor norm = building.find("decoder.0.feed_forward.norm.weight");
  dtype = norm.scalar_type();
  device = norm.device();
  vocabulary_rows = VocabularyRows(config, device);
  if (config.own_head() || !config.reads_features()) read_head(config, building);
  if (config.reads_features()) {
    feature_projection = Linear(building.matrix("feature_projection.weight"));
    feature_norm = {config.norm, config.norm_epsilon, building.find("feature_norm.weight"),
                    building.find("feature_norm.bias")};
    feature_mask = building.find("feature_mask.weight");
    markov_previous = building.find("feature_markov.previous.weight");
    if (markov_previous.defined()) markov_next = Linear(building.matrix("feature_markov.next.weight"));
    for (Linear* layer : {&feature_projection, &markov_next}) {
      if (building.arena != nullptr) layer->pack(*building.arena);
    }
  } else {
    embedded_rows = vocabulary_rows;
  }
  embedding_scale = config.embedding_scale;
  if (config.rounds_embedding_scale) {
    embedding_scale = at::scalar_tensor(config.embedding_scale, at::kFloat).to(dtype).item<double>();
  }
  building.source.built();
  if (config.has_encoder()) {
    encoder.emplace(config, false, building);
  } else if (config.encoder_decoder && !config.reads_features()) {
    encoder_projection = Linear(building.matrix("encoder_projection.weight"));
    if (building.arena != nullptr) encoder_projection.pack(*building.arena);
  }
  at::Tensor table;
  if (config.positions == Positions::kSinusoid) {
    table = sinusoids(config).to(norm.options().requires_grad(false));
  }
  if (encoder) encoder_input = StackInput(config, "encoder", table, building);
  if (!config.reads_features()) decoder_input = StackInput(config, "decoder", table, building);
  if (building.arena != nullptr) keep_first_positions();
}

void TransformerParts::read_head(const TransformerConfig& config, const Building& building) {
  const std::string weight = head_parameter(config);
  const at::Tensor bias = config.head_bias ? building.find("head.bias") : at::Tensor();
  const bool embeds = !config.reads_features();
  if (building.arena != nullptr) {
    head = Linear(building.matrix(weight), bias);
    head.pack(*building.arena);
    // A head that keeps its plain weight shares it with the embedding.
    const bool shared = !config.own_head() && !head.weight().is_meta();
    if (embeds) embedding = shared ? head.weight() : building.source.unconverted("embedding.weight");
  } else {
    if (embeds) embedding = building.find("embedding.weight");
    head = Linear(config.own_head() ? building.find(weight) : embedding, bias);
  }
}

void TransformerParts::keep_first_positions() {
  const at::NoGradGuard no_gradients;
  if (device.is_cpu()) first_positions = decoder.position_tables(kFirstPositions);
}

}  // namespace draftsmith::model
