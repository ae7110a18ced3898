#include "model/layers/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/device_tensors.h"

namespace draftsmith::model {
namespace {

// Llama 3: frequencies whose wave is longer than the pretraining's length over low_frequency_factor are divided by
// `factor`, those shorter than over high_frequency_factor stay, those between are interpolated.
at::Tensor llama3_frequencies(const at::Tensor& plain, const RotaryConfig& config) {
  const auto length = static_cast<double>(config.original_positions);
  const double longest = length / config.low_frequency_factor;
  const double shortest = length / config.high_frequency_factor;
  const at::Tensor wave = 2 * std::numbers::pi / plain;
  const at::Tensor stretched = at::where(wave > longest, plain / config.factor, plain);
  const at::Tensor share =
      (length / wave - config.low_frequency_factor) / (config.high_frequency_factor - config.low_frequency_factor);
  const at::Tensor between = (1 - share) * stretched / config.factor + share * stretched;
  return at::where((wave >= shortest) & (wave <= longest), between, stretched);
}

// YaRN (Peng et al. 2023): pairs that turn often within the pretraining's length keep their frequencies, those that
// turn seldom have them divided by `factor`, those between are interpolated. `waves`: the inverse frequencies.
at::Tensor yarn_frequencies(const at::Tensor& waves, const RotaryConfig& config) {
  const auto width = static_cast<double>(config.width);
  const auto pair_of = [&](double turns) {
    const double wave = static_cast<double>(config.original_positions) / (turns * 2 * std::numbers::pi);
    return width * std::log(wave) / (2 * std::log(config.base));
  };
  double first = pair_of(config.fast_turns);
  double last = pair_of(config.slow_turns);
  if (config.whole_pairs) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, width - 1);
  if (first == last) last += 0.001;
  const at::Tensor ramp = ((at::arange(waves.size(0), at::kFloat) - first) / (last - first)).clamp(0, 1);
  const at::Tensor kept = 1 - ramp;
  return 1.0 / (config.factor * waves) * (1 - kept) + 1.0 / waves * kept;
}

// x [...,h,K] with cosine and sine that broadcast over heads, [...,1,w/2].
at::Tensor rotated(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine) {
  const int64_t half = cosine.size(-1);
  const at::Tensor first = x.narrow(-1, 0, half);
  const at::Tensor second = x.narrow(-1, half, half);
  std::vector<at::Tensor> parts{first * cosine - second * sine, second * cosine + first * sine};
  if (const int64_t rest = x.size(-1) - 2 * half; rest > 0) {
    parts.push_back(x.narrow(-1, 2 * half, rest));
  }
  return at::cat(parts, -1);
}

}  // namespace

at::Tensor rotary_frequencies(const RotaryConfig& config) {
  const at::Tensor exponent = at::arange(0, config.width, 2, at::kFloat) / static_cast<double>(config.width);
  const at::Tensor waves = at::pow(at::scalar_tensor(config.base, at::kFloat), exponent);
  if (config.scaling == RotaryScaling::kYarn) return yarn_frequencies(waves, config);
  const at::Tensor plain = 1.0 / waves;
  if (config.scaling == RotaryScaling::kLinear) return plain / config.factor;
  return config.scaling == RotaryScaling::kLlama3 ? llama3_frequencies(plain, config) : plain;
}

RotaryTable rotary_table(const RotaryConfig& config, int64_t positions, const at::TensorOptions& options) {
  const at::Tensor frequencies = rotary_frequencies(config);
  const at::Tensor angle = at::outer(at::arange(0, positions, frequencies.options()), frequencies);  // [n,w/2]
  // On the CPU, since devices round sines otherwise.
  at::Tensor both = at::stack({angle.cos(), angle.sin()});
  if (config.attention_factor != 1.0) both = both * config.attention_factor;
  both = both.to(options.device(at::kCPU));
  const at::Tensor moved = upload(both, options.device());
  return {moved[0], moved[1]};
}

RotaryTable rotary_rows(const RotaryTable& table, const at::Tensor& positions) {
  const at::Tensor index = positions.flatten();
  const auto pick = [&](const at::Tensor& values) {
    return values.index_select(0, index).view({positions.size(0), positions.size(1), -1});
  };
  return {pick(table.cosine), pick(table.sine)};
}

at::Tensor rotate_sequence(const at::Tensor& x, int64_t head_width, const RotaryTable& table) {
  const int64_t tokens = x.size(1);
  const at::Tensor heads = x.unflatten(-1, {x.size(2) / head_width, head_width});  // [B,T,h,K]
  const auto rows = [&](const at::Tensor& values) { return values.dim() == 3 ? values : values.narrow(0, 0, tokens); };
  return rotated(heads, rows(table.cosine).unsqueeze(-2), rows(table.sine).unsqueeze(-2)).flatten(2);
}

}  // namespace draftsmith::model
