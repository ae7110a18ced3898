#include "infer/costs/decode_work.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "model/transformer/parameters.h"

namespace draftsmith::infer {
namespace {

using model::ParameterSpec;
using model::TransformerConfig;

// Returns whether only begin() reads the parameter.
bool projects_encoder_states(const std::string& name) {
  return name.find(".cross_attention.key.") != std::string::npos ||
         name.find(".cross_attention.value.") != std::string::npos;
}

// Returns whether only the tokens that a Tandem secondary takes over from its primary read the parameter.
bool projects_primary(const std::string& name) {
  return name.find(".primary_projection.") != std::string::npos;
}

// Returns whether every token of the decoder reads the whole parameter: of the table of relative positions it takes a
// few numbers.
bool of_decoder(const std::string& name) {
  return name.starts_with("decoder.") && !projects_encoder_states(name) && !projects_primary(name) &&
         !name.ends_with("relative_bias.weight");
}

// Returns whether a layer of the decoder has the parameter.
bool of_decoder_layer(const std::string& name) {
  return of_decoder(name) && !name.starts_with("decoder.final_norm.");
}

// Returns whether the parameter makes keys or values of a decoder's own tokens.
bool of_own_keys(const std::string& name) {
  return name.starts_with("decoder.") && (name.find(".self_attention.key.") != std::string::npos ||
                                          name.find(".self_attention.value.") != std::string::npos);
}

bool of_encoder(const std::string& name) {
  return name.starts_with("encoder.") && !name.ends_with("relative_bias.weight");
}

int64_t bytes_of(const ParameterSpec& spec, const TransformerConfig& config, c10::ScalarType type) {
  constexpr int64_t kFp32 = sizeof(float);
  const int64_t numbers = c10::multiply_integers(spec.shape);
  if (type == at::kChar) return spec.shape.size() == 2 ? numbers + kFp32 * spec.shape.front() : kFp32 * numbers;
  if (type == at::kHalf && model::keeps_fp32_in_half(config, spec.name)) return kFp32 * numbers;
  return numbers * static_cast<int64_t>(c10::elementSize(type));
}

using Reads = std::function<bool(const std::string& name)>;

// Returns the work of `tokens` tokens that pass through the parameters for which `reads` is true.
Work weights_work(const TransformerConfig& config, c10::ScalarType type, double tokens, const Reads& reads) {
  Work work;
  for (const ParameterSpec& spec : model::expected_parameters(config)) {
    if (!reads(spec.name)) continue;
    work.weight_bytes += static_cast<double>(bytes_of(spec, config, type));
    if (spec.shape.size() == 2) work.operations += 2 * tokens * static_cast<double>(c10::multiply_integers(spec.shape));
  }
  return work;
}

Reads read_by_a_step(const TransformerConfig& config) {
  return [head = model::head_parameter(config)](const std::string& name) { return name == head || of_decoder(name); };
}

// The head and the norm before it.
Reads read_by_the_head(const TransformerConfig& config) {
  return [head = model::head_parameter(config)](const std::string& name) {
    return name == head || name.starts_with("decoder.final_norm.");
  };
}

void add_attention(double operations, Work& work) {
  work.operations += operations;
  work.attention += operations;
}

// Adds weights that are read `passes` times, and the products of `tokens` tokens with them.
void add_weights(const Work& once, double passes, double tokens, Work& work) {
  work.weight_bytes += passes * once.weight_bytes;
  work.operations += tokens * once.operations;
}

// Returns the bytes of the keys and values of one token in all layers.
double cached_bytes(const TransformerConfig& config, c10::ScalarType type) {
  const auto number = static_cast<int64_t>(type == at::kChar ? sizeof(float) : c10::elementSize(type));
  return static_cast<double>(2 * config.decoder_layers * config.key_value_heads() * config.head_width * number);
}

}  // namespace

Work& Work::operator+=(const Work& added) {
  weight_bytes += added.weight_bytes;
  cache_bytes += added.cache_bytes;
  operations += added.operations;
  attention += added.attention;
  return *this;
}

Work Work::times(double count) const {
  return {count * weight_bytes, count * cache_bytes, count * operations, count * attention};
}

Work layers_work(const TransformerConfig& config, c10::ScalarType type, const LayerCounts& counts) {
  const auto layers = static_cast<double>(config.decoder_layers);
  Work work;
  add_weights(weights_work(config, type, 1, of_decoder_layer), counts.layer_passes / layers,
              counts.layer_tokens / layers, work);
  add_weights(weights_work(config, type, 1, read_by_the_head(config)), counts.head_passes, counts.head_tokens, work);
  add_weights(weights_work(config, type, 1, of_own_keys), counts.kv_passes / layers, counts.kv_tokens / layers, work);
  work.cache_bytes = counts.layer_keys / layers * cached_bytes(config, type);
  add_attention(attention_operations(config, 1, counts.layer_pairs), work);
  return work;
}

double attention_operations(const TransformerConfig& config, double queries, double keys) {
  return 4 * queries * keys * static_cast<double>(config.heads * config.head_width);
}

int64_t step_weight_bytes(const TransformerConfig& config, c10::ScalarType type) {
  return static_cast<int64_t>(weights_work(config, type, 1, read_by_a_step(config)).weight_bytes);
}

Work step_work(const TransformerConfig& config, c10::ScalarType type, const StepSize& size) {
  const auto rows = static_cast<double>(size.rows);
  const auto tokens = static_cast<double>(size.tokens);
  const auto length = static_cast<double>(size.length);
  const double source = config.encoder_decoder ? static_cast<double>(size.source) : 0;
  const auto layers = static_cast<double>(config.decoder_layers);
  const double seen = length + (tokens + 1) / 2;  // by a token, on average, itself included
  return layers_work(config, type,
                     {.layer_passes = layers,
                      .layer_tokens = layers * rows * tokens,
                      .layer_keys = layers * rows * (length + tokens + source),
                      .layer_pairs = layers * rows * tokens * (seen + source),
                      .head_passes = 1,
                      .head_tokens = rows * tokens});
}

Work encoder_work(const TransformerConfig& config, c10::ScalarType type, int64_t rows, int64_t source) {
  const auto tokens = static_cast<double>(source);
  Work work = weights_work(config, type, static_cast<double>(rows) * tokens, of_encoder);
  add_attention(static_cast<double>(rows * config.encoder_layers) * attention_operations(config, tokens, tokens), work);
  return work;
}

Work cross_attention_work(const TransformerConfig& config, c10::ScalarType type, int64_t rows, int64_t source) {
  return weights_work(config, type, static_cast<double>(rows * source), [](const std::string& name) {
    return projects_encoder_states(name) || name == "encoder_projection.weight";
  });
}

Work primary_work(const TransformerConfig& config, c10::ScalarType type, double tokens) {
  return weights_work(config, type, tokens,
                      [](const std::string& name) { return projects_primary(name) || of_own_keys(name); });
}

Work prompt_work(const TransformerConfig& config, c10::ScalarType type, int64_t rows, int64_t prompt) {
  const auto tokens = static_cast<double>(prompt);
  Work work = weights_work(config, type, static_cast<double>(rows) * tokens, of_decoder);
  add_attention(
      static_cast<double>(rows * config.decoder_layers) * attention_operations(config, tokens, (tokens + 1) / 2), work);
  return work;
}

namespace {

using model::TransformerConfig;

// Steps of all lines, with the keys and values of sources that they read.
struct StepSums {
  StepCounts counts;
  double source_keys = 0;
  double source_pairs = 0;

  void add(const StepCounts& line, double source) {
    counts += line;
    source_keys += static_cast<double>(line.steps) * source;
    source_pairs += static_cast<double>(line.tokens) * source;
  }
  double keys() const { return static_cast<double>(counts.keys) + source_keys; }
  double pairs() const { return static_cast<double>(counts.pairs) + source_pairs; }
};

// Returns the counts of steps through so many layers and, where there are logits, the head.
LayerCounts through(const StepSums& steps, double layers) {
  return {.layer_passes = layers * steps.counts.passes,
          .layer_tokens = layers * static_cast<double>(steps.counts.tokens),
          .layer_keys = layers * steps.keys(),
          .layer_pairs = layers * steps.pairs(),
          .head_passes = steps.counts.logits > 0 ? steps.counts.passes : 0,
          .head_tokens = static_cast<double>(steps.counts.logits)};
}

double layers_of(const ModelShape& shape) {
  return static_cast<double>(shape.config->decoder_layers);
}

Work work_of(const ModelShape& shape, const LayerCounts& counts) {
  return layers_work(*shape.config, shape.type, counts);
}

// Sums over all lines.
class Decoded {
 public:
  Decoded(const DecodingShapes& shapes, std::span<const DecodedLine> lines) : shapes_(shapes) {
    const bool reads_source = shapes.target.config->encoder_decoder;
    for (const DecodedLine& line : lines) {
      const double source = reads_source ? static_cast<double>(line.source) : 0;
      target_.add(line.stats->target_steps, source);
      draft_.add(line.stats->draft_steps, source);
      layer_runs_ += static_cast<double>(line.stats->layer_runs);
      latency_units_ += static_cast<double>(line.stats->latency_units);
      branched_ += static_cast<double>(line.stats->early_predictions);
      emitted_ += line.stats->emitted;
      ++sources_[line.source];
    }
  }

  DecodeWork work() const {
    DecodeWork work;
    work.emitted = emitted_;
    work.target_tokens = static_cast<double>(target_.counts.tokens);
    for (const auto& [source, count] : sources_) {
      work.input += input(static_cast<double>(source)).times(static_cast<double>(count));
    }
    if (shapes_.algorithm == Algorithm::kCalm) {
      work.target = calm();
    } else if (shapes_.algorithm == Algorithm::kPpd) {
      work.target = ppd();
    } else {
      const auto inside = static_cast<double>(shapes_.drafter ? 0 : shapes_.exit_layer);
      work.target = work_of(shapes_.target, through(target_, layers_of(shapes_.target) - inside));
      work.draft = draft();
      if (inside == 0) work.draft_tokens = static_cast<double>(draft_.counts.tokens);
    }
    return work;
  }

 private:
  // Returns the work of one line before its first token.
  Work input(double source) const {
    Work work = input_of(shapes_.target, source);
    if (shapes_.drafter) work += input_of(*shapes_.drafter, source);
    return work;
  }

  Work input_of(const ModelShape& shape, double source) const {
    const TransformerConfig& config = *shape.config;
    const auto tokens = static_cast<int64_t>(source);
    Work work;
    double passes = 1;
    if (config.encoder_decoder) {
      work = cross_attention_work(config, shape.type, 1, tokens);
      if (config.has_encoder()) work += encoder_work(config, shape.type, 1, tokens);
    } else if (tokens > 1) {
      // Of the prompt all but the last token: a Tandem secondary reads its primary's representations of them.
      work = config.tandem_secondary() ? primary_work(config, shape.type, source - 1)
                                       : prompt_work(config, shape.type, 1, tokens - 1);
      passes = std::ceil((source - 1) / static_cast<double>(shapes_.prompt_chunk));
    }
    work.weight_bytes *= passes / shapes_.sources_together;
    return work;
  }

  Work draft() const {
    if (!shapes_.drafter) {
      if (shapes_.exit_layer == 0) return {};
      LayerCounts counts = through(draft_, static_cast<double>(shapes_.exit_layer));
      // Steps for tokens that no draft step ran have no logits.
      counts.head_passes *= static_cast<double>(draft_.counts.logits) / static_cast<double>(draft_.counts.tokens);
      return work_of(shapes_.target, counts);
    }
    Work work = work_of(*shapes_.drafter, through(draft_, layers_of(*shapes_.drafter)));
    if (!shapes_.drafter->config->tandem_secondary()) return work;
    // Every token that stays, after each step of the primary.
    Work primary = primary_work(*shapes_.drafter->config, shapes_.drafter->type, static_cast<double>(emitted_));
    primary.weight_bytes *= target_.counts.passes;
    return work += primary;
  }

  // Returns the share of the layers that tokens ran before they left.
  double exit_share() const {
    const double all = layers_of(shapes_.target) * static_cast<double>(target_.counts.tokens);
    return all == 0 ? 0 : layer_runs_ / all;
  }

  Work calm() const {
    const double layers = layers_of(shapes_.target);
    const double share = exit_share();
    LayerCounts counts = through(target_, share * layers);
    counts.kv_passes = (1 - share) * layers * target_.counts.passes;
    counts.kv_tokens = (1 - share) * layers * static_cast<double>(target_.counts.tokens);
    if (shapes_.reads_each_layer) {
      counts.head_passes *= share * layers;
      counts.head_tokens *= share * layers;
    }
    return work_of(shapes_.target, counts);
  }

  // The main process runs latency_units layers, one after the other; branches run the others, those of a token in one
  // pass over the first layers. Candidates come from the head.
  Work ppd() const {
    const double layers = layers_of(shapes_.target);
    const double ahead = layers - static_cast<double>(shapes_.exit_layer);
    const auto tokens = std::max(1.0, static_cast<double>(target_.counts.tokens));
    const double share = target_.counts.passes / tokens;  // of a batch's step
    const double readings = static_cast<double>(target_.counts.logits) + branched_;
    return work_of(shapes_.target, {.layer_passes = share * (latency_units_ + ahead * branched_),
                                    .layer_tokens = layer_runs_,
                                    .layer_keys = (latency_units_ + ahead * branched_) * target_.keys() / tokens,
                                    .layer_pairs = layer_runs_ * target_.pairs() / tokens,
                                    .head_passes = share * readings,
                                    .head_tokens = readings});
  }

  const DecodingShapes& shapes_;
  std::map<int64_t, int64_t> sources_;  // lines by the length of their source
  StepSums target_;
  StepSums draft_;
  double layer_runs_ = 0;
  double latency_units_ = 0;
  double branched_ = 0;  // tokens with branches
  int64_t emitted_ = 0;
};

}  // namespace

Work DecodeWork::decoding() const {
  Work work = draft;
  return work += target;
}

Work DecodeWork::total() const {
  Work work = decoding();
  return work += input;
}

double DecodeWork::operations_ratio() const {
  if (draft_tokens == 0 || target_tokens == 0) return std::numeric_limits<double>::quiet_NaN();
  return draft.operations / draft_tokens / (target.operations / target_tokens);
}

bool counts_work(Algorithm algorithm) {
  return algorithm == Algorithm::kPlain || algorithm == Algorithm::kDraftVerify || algorithm == Algorithm::kCalm ||
         algorithm == Algorithm::kPpd;
}

DecodeWork decode_work(const DecodingShapes& shapes, std::span<const DecodedLine> lines) {
  return Decoded(shapes, lines).work();
}

}  // namespace draftsmith::infer
