// The canonical names and shapes of a transformer's parameters. Inside this program every family uses these names;
// model/families/ maps them to the names of each family's files.
//
//   embedding.weight                                [V,D]           fewer rows with a pruned vocabulary
//   {encoder|decoder}.embedding_norm.weight         [D]             config.embedding_norm
//   {stack}.positions.weight                        [offset+P,D]    Positions::kLearned
//   {stack}.relative_bias.weight                    [buckets,H]     Positions::kRelativeBias; used by all layers
//   {stack}.{i}.self_attention.relative_bias.weight [buckets,H]     relative_bias_in_layers: in place of the stack's
//   {stack}.{i}.self_attention.norm.weight          [D]             (+ .bias for Norm::kLayer, likewise below)
//   {stack}.{i}.{sublayer}.output_norm.weight       [D]             NormPlace::kAround: the norm behind
//   {stack}.{i}.self_attention.query.weight         [H*K,D]         (+ .bias for projection_bias; output_bias,
//   {stack}.{i}.self_attention.{key,value}.weight   [kv_heads*K,D]   feed_forward_bias likewise)
//   {stack}.{i}.self_attention.output.weight        [D,H*K]
//   {stack}.{i}.self_attention.{query,key}_norm.weight [K]          QueryKeyNorm::kHead; kWidth: [H*K], [kv_heads*K]
//   decoder.{i}.cross_attention.*                   the same five   encoder-decoder models only
//   {stack}.{i}.feed_forward.norm.weight            [D]
//   {stack}.{i}.feed_forward.{gate,up}.weight       [F,D]           gate only where config.gated
//   {stack}.{i}.feed_forward.down.weight            [D,F]           T5's `wo`: stays fp32 in fp16
//   decoder.{i}.primary_projection.weight           [D,D_L]         Tandem secondaries (model/models/tandem.h)
//   encoder_projection.weight                       [D,D_L]         in place of an encoder: encoder-decoder Tandem
//                                                                   secondaries and model/models/shared_encoder.h
//   feature_projection.weight                       [D,n*D]         features drafters: of n layers' states
//   feature_norm.weight                             [D]             features drafters: of the projected state
//   feature_mask.weight                             [2,D]           features.block: a mask's embedding, and its state
//   feature_markov.{previous,next}.weight           [V,r]           features.markov_rank; rows as the head
//   {stack}.final_norm.weight                       [D]             config.final_norm
//   head.weight                                     [V,D]           only when not tied; rows as the embedding
//   head.bias                                       [V]             config.head_bias; rows as the embedding
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/aten.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

struct ParameterSpec {
  std::string name;  // canonical
  std::vector<int64_t> shape;
};

// Returns all parameters of a model, in the order embedding, encoder, decoder, head. Tied tensors appear once.
std::vector<ParameterSpec> expected_parameters(const TransformerConfig& config);

// Returns the name of the parameter that the head multiplies with: its own, or the embedding's if they are tied.
std::string head_parameter(const TransformerConfig& config);

// Returns the count of numbers in all parameters, tied ones once.
int64_t count_numbers(const TransformerConfig& config);

// Returns whether a parameter stays in fp32 in a model of fp16 (T5's feed-forward down projection overflows).
bool keeps_fp32_in_half(const TransformerConfig& config, const std::string& canonical_name);
// Returns whether no training changes a parameter, under its canonical name or behind a prefix: the bias on logits.
bool is_constant(const std::string& name);
// Returns the type of one parameter in a model of type `dtype`: in fp16 some stay fp32.
at::ScalarType parameter_dtype(const TransformerConfig& config, const std::string& parameter, at::ScalarType dtype);

// Returns the sinusoids of Positions::kSinusoid of all positions, fp32 [P,D]; position 0 is the first row.
at::Tensor sinusoids(const TransformerConfig& config);

// The normal distribution of a parameter's initial values; a deviation of 0 is a constant.
struct InitialValues {
  double mean = 0;
  double deviation = 0;
};

// Returns the distribution of one parameter. T5's own initialisation (Mesh TensorFlow's; unscaled attention
// makes the query's deviation sqrt(K) smaller than the key's): normal with deviation f·(D K)^-½ for queries, f·D^-½ for
// keys, values, feed-forward inputs and relative biases, f·(H K)^-½ and f·F^-½ for the outputs, 1 for embeddings and
// D^-½ for an untied head unless config.embedding_std says otherwise; norms are f, their biases 0. f =
// config.initializer_factor. All others: deviation config.initializer_range, norms 1 (0 if 1 is added), biases 0.
InitialValues initial_values(const ParameterSpec& spec, const TransformerConfig& config);

// Draws all parameters from initial_values(): by canonical name, fp32 on the CPU.
std::map<std::string, at::Tensor> initial_parameters(const TransformerConfig& config, uint64_t seed);

// Start of a projection of another model's states [D,D_L]: random numbers, or the unit matrix, cut or padded with zeros
// where the widths differ.
enum class ProjectionStart { kRandom, kIdentity };

// Returns the start of one projection, fp32 on the CPU. Random numbers have deviation D_L^-0.5, which keeps the size of
// the projected states.
at::Tensor initial_projection(const ParameterSpec& spec, ProjectionStart start, uint64_t seed);

}  // namespace draftsmith::model
