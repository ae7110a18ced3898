// The canonical names and shapes of a transformer's parameters. Inside this program every family uses these names;
// model/families/ maps them to the names of each family's files.
//
//   embedding.weight                                [V,D]
//   {encoder|decoder}.relative_bias.weight          [buckets,H]     Positions::kRelativeBias; layer 0's, used by all
//   layers {stack}.{i}.self_attention.norm.weight          [D]             (+ .bias for Norm::kLayer, likewise below)
//   {stack}.{i}.self_attention.{query,key,value}.weight  [H*K,D]
//   {stack}.{i}.self_attention.output.weight        [D,H*K]
//   decoder.{i}.cross_attention.*                   the same five   encoder-decoder models only
//   {stack}.{i}.feed_forward.norm.weight            [D]
//   {stack}.{i}.feed_forward.{gate,up}.weight       [F,D]           gate only where config.gated
//   {stack}.{i}.feed_forward.down.weight            [D,F]           T5's `wo`: stays fp32 in fp16
//   {stack}.final_norm.weight                       [D]
//   head.weight                                     [V,D]           only when not tied
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/transformer_config.h"

namespace draftsmith::model {

struct ParameterSpec {
  std::string name;  // canonical
  std::vector<int64_t> shape;
};

// All parameters of a model, in the order embedding, encoder, decoder, head. Tied tensors appear once.
std::vector<ParameterSpec> expected_parameters(const TransformerConfig& config);

// Whether a parameter stays in fp32 when the model is converted to fp16 (the feed-forward's down projection overflows).
bool keeps_fp32_in_half(const std::string& canonical_name);

}  // namespace draftsmith::model
