// A tiny model of every family, in a form that its files can hold.
#pragma once

#include "model/families/family.h"
#include "tests/support/models.h"

namespace draftsmith::model {

// Returns a model with three decoder layers in the sizes of tiny models; heads share keys and one layer does not
// rotate where the family knows that.
inline TransformerConfig tiny_of(const Family& family) {
  TransformerConfig config = family.base;
  const ModelSizes sizes = tiny_sizes(3, family.shapes.ff_factor > 0 ? family.shapes.ff_factor * 24 : 20);
  config.eos = {1};
  config.vocabulary = sizes.vocabulary;
  config.width = sizes.width;
  config.heads = sizes.heads;
  config.kv_heads = family.shapes.grouped_keys ? sizes.heads / 2 : 0;
  config.head_width = sizes.head_width;
  config.ff_width = sizes.ff_width;
  config.encoder_layers = config.encoder_decoder ? 2 : 0;
  config.decoder_layers = sizes.decoder_layers;
  config.initializer_range = 0.3;
  if (config.positions == Positions::kRelativeBias) {
    config.relative_buckets = 8;
    config.relative_max_distance = 12;
  } else if (config.positions != Positions::kAlibi) {
    config.max_positions = 64;
  }
  derive_from_sizes(family, config);
  if (!config.window_layers.empty()) config.window = 3;
  if (family.shapes.unrotated_interval > 0) config.unrotated_layers = {1};
  if (family.shapes.starts_with_eos) config.decoder_start = config.eos.front();
  if (config.sinusoids_reach_end) config.position_offset = config.pad + 1;
  return config;
}

}  // namespace draftsmith::model
