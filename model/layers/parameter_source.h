// The source of a model's parameters while it is built, under their canonical names (model/transformer/parameters.h),
// and the choices that its layers are built with.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/aten.h"

namespace draftsmith::model {

class ParameterSource {
 public:
  virtual ~ParameterSource() = default;
  // Returns a parameter in the type and on the device it is computed with; undefined if there is none.
  virtual at::Tensor find(const std::string& name) = 0;
  // Like find(), but may return the parameter in the float type in which it is stored, for callers that convert it
  // themselves.
  virtual at::Tensor unconverted(const std::string& name) { return find(name); }
  // Returns the type that most parameters are computed in.
  virtual at::ScalarType type() const = 0;
  // Notifies the source that a block has been built: memory used for reading it may be released.
  virtual void built() {}
};

// Parameters that are already in memory.
class GivenParameters final : public ParameterSource {
 public:
  explicit GivenParameters(const std::map<std::string, at::Tensor>& parameters) : parameters_(parameters) {}
  at::Tensor find(const std::string& name) override {
    const auto found = parameters_.find(name);
    return found == parameters_.end() ? at::Tensor() : found->second;
  }

  at::ScalarType type() const override { return parameters_.at("embedding.weight").scalar_type(); }

 private:
  const std::map<std::string, at::Tensor>& parameters_;
};

// RMS norm times w, layer norm, or RMS norm times 1 + w (Gemma).
enum class Norm { kRms, kLayer, kRmsPlusOne };

// The place of a sublayer f's norm: x + f(norm(x)); norm(x + f(x)), as in the first transformer (Marian, BART);
// x + norm(f(x)) (OLMo-2); or x + norm2(f(norm1(x))) (Gemma).
enum class NormPlace { kBefore, kAfterSum, kAfterSublayer, kAround };
constexpr bool norms_input(NormPlace place) {
  return place == NormPlace::kBefore || place == NormPlace::kAround;
}
constexpr bool norms_output(NormPlace place) {
  return place == NormPlace::kAfterSublayer || place == NormPlace::kAround;
}

// Operation on a linear layer's outputs. The kernels of model/layers/kernels know these by number.
enum class PostOp { kNone, kRelu, kGelu, kGeluTanh, kSilu };
// The one between a feed-forward sublayer's projections; not kNone.
using Activation = PostOp;

// Scaling of rotary frequencies beyond the lengths of pretraining (Transformers' rope_type). Dynamic scaling begins
// behind max_position_embeddings, where texts end here: until there it is none, and is kept to be written again.
enum class RotaryScaling { kNone, kLinear, kDynamic, kYarn, kLlama3 };

// Rotary position embeddings (Su et al. 2021): pairs (i, i + width/2) of a head's first `width` numbers are rotated by
// position * base^(-2i/width), stretched by the scaling.
struct RotaryConfig {
  int64_t width = 0;  // numbers of each head that are rotated, even
  double base = 10000.0;
  RotaryScaling scaling = RotaryScaling::kNone;
  double factor = 1.0;                // of all scalings
  double low_frequency_factor = 1;    // llama3
  double high_frequency_factor = 4;   // llama3
  int64_t original_positions = 8192;  // llama3 and yarn: length of pretraining
  // yarn: turns within that length above which a pair is not stretched, and below which it is wholly
  double fast_turns = 32;
  double slow_turns = 1;
  bool whole_pairs = true;        // yarn: both bounds are rounded to whole pairs
  double attention_factor = 1.0;  // yarn: on cosines and sines

  friend bool operator==(const RotaryConfig&, const RotaryConfig&) = default;
};

}  // namespace draftsmith::model
