// Choices that the layers are built with.
#pragma once

#include <cstdint>

namespace draftsmith::model {

enum class Norm { kRms, kLayer };
enum class Activation { kRelu, kGeluTanh, kGelu, kSilu };

// Scaling of rotary frequencies beyond the lengths of pretraining (Transformers' rope_type).
enum class RotaryScaling { kNone, kLinear, kLlama3 };

// Rotary position embeddings (Su et al. 2021): pairs (i, i + width/2) of a head's first `width` numbers are rotated by
// position * base^(-2i/width), stretched by the scaling.
struct RotaryConfig {
  int64_t width = 0;  // numbers of each head that are rotated, even
  double base = 10000.0;
  RotaryScaling scaling = RotaryScaling::kNone;
  double factor = 1.0;                // linear and llama3
  double low_frequency_factor = 1;    // llama3
  double high_frequency_factor = 4;   // llama3
  int64_t original_positions = 8192;  // llama3: length of pretraining
};

}  // namespace draftsmith::model
