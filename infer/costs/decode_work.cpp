#include "infer/costs/decode_work.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace draftsmith::infer {

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
