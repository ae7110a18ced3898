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

// Returns whether only tokens whose states a features drafter takes from its target read the parameter.
bool projects_features(const std::string& name) {
  return name.starts_with("feature_projection.");
}

// Returns whether each token of a run of masks but its first reads the parameter, one after the other.
bool adds_markov_bias(const std::string& name) {
  return name == "feature_markov.next.weight";
}

// Returns whether tokens read a few numbers of the parameter alone, or it belongs to the embedding.
bool of_the_input(const std::string& name) {
  return name.ends_with("relative_bias.weight") || name.ends_with(".positions.weight") ||
         name.find(".embedding_norm.") != std::string::npos;
}

// Returns whether every token of the decoder reads the whole parameter.
bool of_decoder(const std::string& name) {
  return name.starts_with("decoder.") && !projects_encoder_states(name) && !projects_primary(name) &&
         !of_the_input(name);
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
  return name.starts_with("encoder.") && !of_the_input(name);
}

int64_t bytes_of(const ParameterSpec& spec, const TransformerConfig& config, c10::ScalarType type) {
  constexpr int64_t kFp32 = sizeof(float);
  const int64_t numbers = c10::multiply_integers(spec.shape);
  if (type == at::kChar) return spec.shape.size() == 2 ? numbers + kFp32 * spec.shape.front() : kFp32 * numbers;
  return numbers * static_cast<int64_t>(c10::elementSize(model::parameter_dtype(config, spec.name, type)));
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

// The head and the norm before it.
Reads read_by_the_head(const TransformerConfig& config) {
  return [head = model::head_parameter(config)](const std::string& name) {
    return name == head || name == "head.bias" || name.starts_with("decoder.final_norm.");
  };
}

// Returns the work of a token with logits: a features drafter's head may be its target's.
Work head_work(const TransformerConfig& config, c10::ScalarType type) {
  Work work = weights_work(config, type, 1, read_by_the_head(config));
  if (config.reads_features() && !config.own_head()) {
    const ParameterSpec head{"head.weight", {config.vocabulary, config.width}};
    work.weight_bytes += static_cast<double>(bytes_of(head, config, type));
    work.operations += 2 * static_cast<double>(config.vocabulary * config.width);
  }
  return work;
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

// Parts of decoders that ran: all decoder layers are taken to have the same shapes, so only their number counts.
struct LayerCounts {
  double layer_passes = 0;  // layers whose weights were read
  double layer_tokens = 0;  // tokens through layers: a token through N of them counts N times
  double layer_keys = 0;    // cached tokens read by layers, those of sources included
  double layer_pairs = 0;   // pairs of a token and a key that it sees, in all layers
  double head_passes = 0;   // readings of the head
  double head_tokens = 0;   // tokens with logits
  double kv_passes = 0;     // layers of which only the projections to keys and values were read
  double kv_tokens = 0;     // tokens through these
};

Work layers_work(const ModelShape& shape, const LayerCounts& counts) {
  const auto& [config, type] = shape;
  const auto layers = static_cast<double>(config->decoder_layers);
  Work work;
  add_weights(weights_work(*config, type, 1, of_decoder_layer), counts.layer_passes / layers,
              counts.layer_tokens / layers, work);
  add_weights(head_work(*config, type), counts.head_passes, counts.head_tokens, work);
  add_weights(weights_work(*config, type, 1, of_own_keys), counts.kv_passes / layers, counts.kv_tokens / layers, work);
  work.cache_bytes = counts.layer_keys / layers * cached_bytes(*config, type);
  add_attention(attention_operations(*config, 1, counts.layer_pairs), work);
  return work;
}

// Returns a count of keys or pairs summed over the layers [first, last), of which some may have windows.
double over_layers(const TransformerConfig& config, int64_t first, int64_t last, int64_t all, int64_t in_window) {
  const int64_t windows =
      std::ranges::count_if(config.window_layers, [&](int64_t j) { return j >= first && j < last; });
  return static_cast<double>((last - first - windows) * all + windows * in_window);
}

// Returns the work of a decoder-only model on a prompt, without logits.
Work prompt_work(const ModelShape& shape, int64_t prompt) {
  const TransformerConfig& config = *shape.config;
  Work work = weights_work(config, shape.type, static_cast<double>(prompt),
                           [](const std::string& name) { return of_decoder(name) || projects_features(name); });
  StepCounts counts{.window = config.window};
  counts.add({.tokens = prompt});
  const double pairs = over_layers(config, 0, config.decoder_layers, counts.pairs, counts.window_pairs);
  add_attention(attention_operations(config, 1, pairs), work);
  return work;
}

// Returns the work of projecting so many of the primary's representations to the keys and values of all layers of a
// Tandem secondary (model/models/tandem.h).
Work primary_work(const ModelShape& shape, double tokens) {
  return weights_work(*shape.config, shape.type, tokens,
                      [](const std::string& name) { return projects_primary(name) || of_own_keys(name); });
}

// Returns the counts of steps through the layers [first, last), or a share of them, and of the head with logits.
LayerCounts through(const StepCounts& steps, const TransformerConfig& config, int64_t first, int64_t last,
                    double share = 1) {
  const auto layers = share * static_cast<double>(last - first);
  return {.layer_passes = layers * steps.passes,
          .layer_tokens = layers * static_cast<double>(steps.tokens),
          .layer_keys = share * over_layers(config, first, last, steps.keys, steps.window_keys),
          .layer_pairs = share * over_layers(config, first, last, steps.pairs, steps.window_pairs),
          .head_passes = steps.logits > 0 ? steps.passes : 0,
          .head_tokens = static_cast<double>(steps.logits)};
}

// Adds a line's steps, which also read the keys and values of its source.
void add_steps(StepCounts line, int64_t source, StepCounts& sum) {
  line.keys += line.steps * source;
  line.pairs += line.tokens * source;
  sum += line;
}

double layers_of(const ModelShape& shape) {
  return static_cast<double>(shape.config->decoder_layers);
}

// Sums over all lines.
class Decoded {
 public:
  Decoded(const DecodingShapes& shapes, std::span<const DecodedLine> lines) : shapes_(shapes) {
    const bool reads_source = shapes.target.config->encoder_decoder;
    for (const DecodedLine& line : lines) {
      const int64_t source = reads_source ? line.source : 0;
      add_steps(line.stats->target_steps, source, target_);
      add_steps(line.stats->draft_steps, source, draft_);
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
    work.target_tokens = static_cast<double>(target_.tokens);
    for (const auto& [source, count] : sources_) work.input += input(source).times(static_cast<double>(count));
    if (shapes_.algorithm == Algorithm::kCalm) {
      work.target = calm();
    } else if (shapes_.algorithm == Algorithm::kPpd) {
      work.target = ppd();
    } else {
      const TransformerConfig& config = *shapes_.target.config;
      const int64_t inside = shapes_.drafter ? 0 : shapes_.exit_layer;
      work.target = layers_work(shapes_.target, through(target_, config, inside, config.decoder_layers));
      work.draft = draft();
      if (inside == 0) work.draft_tokens = static_cast<double>(draft_.tokens);
    }
    return work;
  }

 private:
  // Returns the work of one line before its first token.
  Work input(int64_t source) const {
    Work work = input_of(shapes_.target, source);
    if (shapes_.drafter) work += input_of(*shapes_.drafter, source);
    return work;
  }

  Work input_of(const ModelShape& shape, int64_t source) const {
    const TransformerConfig& config = *shape.config;
    Work work;
    double passes = 1;
    if (config.encoder_decoder) {
      work = cross_attention_work(config, shape.type, source);
      if (config.has_encoder()) work += encoder_work(config, shape.type, source);
    } else if (source > 1) {
      // Of the prompt all but the last token: a Tandem secondary reads its primary's representations of them.
      work = config.tandem_secondary() ? primary_work(shape, static_cast<double>(source - 1))
                                       : prompt_work(shape, source - 1);
      passes = std::ceil(static_cast<double>(source - 1) / static_cast<double>(shapes_.prompt_chunk));
    }
    work.weight_bytes *= passes / shapes_.sources_together;
    return work;
  }

  Work draft() const {
    if (!shapes_.drafter) {
      if (shapes_.exit_layer == 0) return {};
      LayerCounts counts = through(draft_, *shapes_.target.config, 0, shapes_.exit_layer);
      // Steps for tokens that no draft step ran have no logits.
      counts.head_passes *= static_cast<double>(draft_.logits) / static_cast<double>(draft_.tokens);
      return layers_work(shapes_.target, counts);
    }
    const TransformerConfig& config = *shapes_.drafter->config;
    Work work = layers_work(*shapes_.drafter, through(draft_, config, 0, config.decoder_layers));
    if (const auto biased = static_cast<double>(draft_.logits - draft_.steps); biased > 0) {
      const double share = draft_.passes / static_cast<double>(draft_.steps);  // of a batch's step
      add_weights(weights_work(config, shapes_.drafter->type, 1, adds_markov_bias), biased * share, biased, work);
    }
    if (!config.tandem_secondary() && !config.reads_features()) return work;
    // Every token that stays, after each step of the primary.
    const auto stay = static_cast<double>(emitted_);
    Work primary = config.tandem_secondary() ? primary_work(*shapes_.drafter, stay)
                                             : weights_work(config, shapes_.drafter->type, stay, projects_features);
    primary.weight_bytes *= target_.passes;
    return work += primary;
  }

  Work calm() const {
    const double layers = layers_of(shapes_.target);
    const auto tokens = static_cast<double>(target_.tokens);
    const double share = tokens == 0 ? 0 : layer_runs_ / (layers * tokens);  // of the layers, before tokens left
    LayerCounts counts = through(target_, *shapes_.target.config, 0, shapes_.target.config->decoder_layers, share);
    counts.kv_passes = (1 - share) * layers * target_.passes;
    counts.kv_tokens = (1 - share) * layers * tokens;
    if (shapes_.reads_each_layer) {
      counts.head_passes *= share * layers;
      counts.head_tokens *= share * layers;
    }
    return layers_work(shapes_.target, counts);
  }

  // The main process runs latency_units layers, one after the other; branches run the others, those of a token in one
  // pass over the first layers. Candidates come from the head.
  Work ppd() const {
    const double layers = layers_of(shapes_.target);
    const double ahead = layers - static_cast<double>(shapes_.exit_layer);
    const auto tokens = std::max(1.0, static_cast<double>(target_.tokens));
    const LayerCounts all = through(target_, *shapes_.target.config, 0, shapes_.target.config->decoder_layers);
    const double share = target_.passes / tokens;  // of a batch's step
    const double readings = static_cast<double>(target_.logits) + branched_;
    const double passes = latency_units_ + ahead * branched_;
    return layers_work(shapes_.target, {.layer_passes = share * passes,
                                        .layer_tokens = layer_runs_,
                                        .layer_keys = passes * all.layer_keys / layers / tokens,
                                        .layer_pairs = layer_runs_ * all.layer_pairs / layers / tokens,
                                        .head_passes = share * readings,
                                        .head_tokens = readings});
  }

  const DecodingShapes& shapes_;
  std::map<int64_t, int64_t> sources_;  // lines by the length of their source
  StepCounts target_;
  StepCounts draft_;
  double layer_runs_ = 0;
  double latency_units_ = 0;
  double branched_ = 0;  // tokens with branches
  int64_t emitted_ = 0;
};

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

double attention_operations(const TransformerConfig& config, double queries, double keys) {
  return 4 * queries * keys * static_cast<double>(config.heads * config.head_width);
}

int64_t step_weight_bytes(const TransformerConfig& config, c10::ScalarType type) {
  const std::string head = model::head_parameter(config);
  const auto reads = [&](const std::string& name) { return name == head || of_decoder(name); };
  return static_cast<int64_t>(weights_work(config, type, 1, reads).weight_bytes);
}

Work encoder_work(const TransformerConfig& config, c10::ScalarType type, int64_t source) {
  const auto tokens = static_cast<double>(source);
  Work work = weights_work(config, type, tokens, of_encoder);
  add_attention(static_cast<double>(config.encoder_layers) * attention_operations(config, tokens, tokens), work);
  return work;
}

Work cross_attention_work(const TransformerConfig& config, c10::ScalarType type, int64_t source) {
  return weights_work(config, type, static_cast<double>(source), [](const std::string& name) {
    return projects_encoder_states(name) || name == "encoder_projection.weight";
  });
}

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

DecodeWork decode_work(const DecodingShapes& shapes, std::span<const DecodedLine> lines) {
  return Decoded(shapes, lines).work();
}

}  // namespace draftsmith::infer
