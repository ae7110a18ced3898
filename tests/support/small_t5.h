// An encoder-decoder for tests that need weights and nothing else.
#pragma once

#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

// Width 16, two heads, one encoder layer.
inline TransformerConfig small_t5(int64_t decoder_layers = 2, int64_t vocabulary = 40) {
  TransformerConfig config;
  config.family = "t5";
  config.vocabulary = vocabulary;
  config.width = 16;
  config.heads = 2;
  config.head_width = 8;
  config.ff_width = 32;
  config.encoder_layers = 1;
  config.decoder_layers = decoder_layers;
  config.tied_head = false;
  return config;
}

}  // namespace draftsmith::model
