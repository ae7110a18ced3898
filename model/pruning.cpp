#include "model/pruning.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include <fmt/format.h>

#include "base/error.h"
#include "model/parameters.h"

namespace draftsmith::model {

namespace {

[[noreturn]] void refuse_layers(const std::string& choice, int64_t count, const std::string& where) {
  throw UserError({.where = where,
                   .what = "says no layers to keep",
                   .expected = fmt::format("first:N, every:K, or a rising list of layers in 0..{}", count - 1),
                   .found = choice.substr(0, 100),
                   .hint = {}});
}

// A whole number, or -1.
int64_t number(std::string_view text) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

std::vector<int64_t> layer_list(const std::string& choice, int64_t count, const std::string& where) {
  std::vector<int64_t> layers;
  for (size_t begin = 0; begin <= choice.size();) {
    const size_t end = std::min(choice.find(',', begin), choice.size());
    const int64_t layer = number(std::string_view(choice).substr(begin, end - begin));
    if (layer < 0 || layer >= count || (!layers.empty() && layer <= layers.back())) refuse_layers(choice, count, where);
    layers.push_back(layer);
    begin = end + 1;
  }
  return layers;
}

// Indices of the `kept` highest scores, rising.
at::Tensor highest(const at::Tensor& scores, int64_t kept) {
  return std::get<0>(std::get<1>(scores.topk(kept)).sort());
}

// Rows of heads `heads` of a projection whose heads have `width` rows.
at::Tensor rows_of(const at::Tensor& heads, int64_t width) {
  return (heads.unsqueeze(1) * width + at::arange(width, heads.options())).flatten();
}

class Pruner {
 public:
  Pruner(const TransformerModel& model, const PruneOptions& options)
      : from_(model), config_(model.config()), options_(options) {}

  std::unique_ptr<TransformerModel> run() {
    check();
    for (const auto& [name, tensor] : from_.parameters()) {
      if (!is_block(name)) parameters_[name] = tensor.detach().to(at::kFloat).clone();
    }
    if (config_.encoder_decoder) prune_stack("encoder", options_.encoder_layers, config_.encoder_layers);
    prune_stack("decoder", options_.decoder_layers, config_.decoder_layers);
    config_.ff_width = ff_width();
    config_.kv_heads = config_.kv_heads > 0 ? heads() / group() : 0;
    config_.heads = heads();
    return std::make_unique<TransformerModel>(config_, std::move(parameters_));
  }

 private:
  int64_t ff_width() const { return options_.ff_width > 0 ? options_.ff_width : from_.config().ff_width; }
  int64_t heads() const { return options_.heads > 0 ? options_.heads : from_.config().heads; }
  // Queries that share a key head.
  int64_t group() const { return from_.config().heads / from_.config().key_value_heads(); }
  bool shares_heads() const { return from_.config().positions == Positions::kRelativeBias; }

  static bool is_block(const std::string& name) {
    return name.find("_attention.") != std::string::npos || name.find(".feed_forward.") != std::string::npos;
  }

  void check() const {
    const TransformerConfig& config = from_.config();
    Problems problems;
    const auto wrong = [&](const char* option, const std::string& what, const std::string& expected, int64_t found) {
      problems.add({.where = option, .what = what, .expected = expected, .found = std::to_string(found), .hint = {}});
    };
    if (ff_width() > config.ff_width) {
      wrong("ff_width", "the model has fewer neurons", fmt::format("at most {}", config.ff_width), ff_width());
    }
    if (heads() > config.heads) {
      wrong("heads", "the model has fewer heads", fmt::format("at most {}", config.heads), heads());
    }
    if (heads() % group() != 0) {
      wrong("heads", "splits a group of heads that share keys", fmt::format("a multiple of {}", group()), heads());
    }
    const bool fixed = config.family == "gpt2" || config.family == "gpt_neox" || config.family == "bloom";
    if (fixed && heads() != config.heads) {
      wrong("heads", "files of this family cannot hold fewer heads of the same width", "0", heads());
    }
    if (config.family == "bloom" && ff_width() != config.ff_width) {
      wrong("ff_width", "files of this family cannot hold another width", "0", ff_width());
    }
    problems.throw_if_any();
  }

  at::Tensor value(const std::string& name) const { return from_.parameters().at(name).detach().to(at::kFloat); }
  bool has(const std::string& name) const { return from_.parameters().contains(name); }

  void prune_stack(const std::string& stack, const std::string& choice, int64_t count) {
    const std::vector<int64_t> kept = layers_to_keep(choice, count, stack + "_layers");
    at::Tensor shared;  // heads of all layers, where they share one bias
    if (shares_heads() && heads() != from_.config().heads) {
      at::Tensor scores;
      for (const int64_t layer : kept) {
        const at::Tensor own = head_scores(fmt::format("{}.{}.self_attention", stack, layer));
        scores = scores.defined() ? scores + own : own;
      }
      shared = highest(scores, heads());
      const std::string bias = stack + ".relative_bias.weight";
      parameters_[bias] = parameters_.at(bias).index_select(1, shared);
    }
    for (size_t to = 0; to < kept.size(); ++to) {
      const std::string source = fmt::format("{}.{}", stack, kept[to]);
      const std::string target = fmt::format("{}.{}", stack, to);
      prune_attention(source + ".self_attention", target + ".self_attention", shared);
      if (has(source + ".cross_attention.query.weight")) {
        prune_attention(source + ".cross_attention", target + ".cross_attention", {});
      }
      prune_feed_forward(source + ".feed_forward", target + ".feed_forward");
    }
    (stack == "encoder" ? config_.encoder_layers : config_.decoder_layers) = static_cast<int64_t>(kept.size());
  }

  // Of each group of heads that share keys. [kv]
  at::Tensor head_scores(const std::string& prefix) const {
    const TransformerConfig& config = from_.config();
    const int64_t shared = config.key_value_heads();
    const at::Tensor values = value(prefix + ".value.weight").view({shared, -1}).norm(2, 1);
    const at::Tensor outputs = value(prefix + ".output.weight").t().reshape({shared, -1}).norm(2, 1);
    return values * outputs;
  }

  void copy(const std::string& from, const std::string& to, const at::Tensor& index, int64_t dimension) {
    if (!has(from)) return;
    const at::Tensor tensor = value(from);
    parameters_[to] =
        index.defined() && dimension < tensor.dim() ? tensor.index_select(dimension, index) : tensor.clone();
  }

  void prune_attention(const std::string& from, const std::string& to, const at::Tensor& shared) {
    at::Tensor groups = shared;
    if (!groups.defined() && heads() != from_.config().heads) groups = highest(head_scores(from), heads() / group());
    at::Tensor rows;        // of keys and values
    at::Tensor query_rows;  // of queries, and columns of the output
    if (groups.defined()) {
      rows = rows_of(groups, from_.config().head_width);
      query_rows = rows_of(groups, group() * from_.config().head_width);
    }
    for (const char* kind : {".weight", ".bias"}) {
      copy(from + ".norm" + kind, to + ".norm" + kind, {}, 0);
      copy(from + ".query" + kind, to + ".query" + kind, query_rows, 0);
      copy(from + ".key" + kind, to + ".key" + kind, rows, 0);
      copy(from + ".value" + kind, to + ".value" + kind, rows, 0);
      copy(from + ".output" + kind, to + ".output" + kind, query_rows, 1);
    }
  }

  void prune_feed_forward(const std::string& from, const std::string& to) {
    at::Tensor neurons;
    if (ff_width() != from_.config().ff_width) {
      at::Tensor scores = value(from + ".up.weight").norm(2, 1) * value(from + ".down.weight").norm(2, 0);
      if (has(from + ".gate.weight")) scores = scores * value(from + ".gate.weight").norm(2, 1);
      neurons = highest(scores, ff_width());
    }
    for (const char* kind : {".weight", ".bias"}) {
      copy(from + ".norm" + kind, to + ".norm" + kind, {}, 0);
      copy(from + ".gate" + kind, to + ".gate" + kind, neurons, 0);
      copy(from + ".up" + kind, to + ".up" + kind, neurons, 0);
      copy(from + ".down" + kind, to + ".down" + kind, neurons, 1);
    }
  }

  const TransformerModel& from_;
  TransformerConfig config_;
  const PruneOptions& options_;
  std::map<std::string, at::Tensor> parameters_;
};

}  // namespace

Fields<PruneOptions> PruneOptions::fields() {
  constexpr const char* kLayers = "Layers that stay: first:N, every:K, or a list such as 0,2,5. Empty: all.";
  return Fields<PruneOptions>("pruning options")
      .add("by", &PruneOptions::by, Choices{"magnitude"},
           "What neurons and heads are chosen by: the size of their weights.")
      .add("encoder_layers", &PruneOptions::encoder_layers, kLayers)
      .add("decoder_layers", &PruneOptions::decoder_layers, kLayers)
      .add("ff_width", &PruneOptions::ff_width, Range{0, 1 << 20}, Unit{"neurons"},
           "Neurons that stay in each feed-forward layer, those of the largest weights. 0: all.")
      .add("heads", &PruneOptions::heads, Range{0, 4096},
           "Attention heads that stay in each layer, those of the largest weights. 0: all.");
}

std::vector<int64_t> layers_to_keep(const std::string& choice, int64_t count, const std::string& where) {
  std::vector<int64_t> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), int64_t{0});
  if (choice.empty()) return all;
  const size_t colon = choice.find(':');
  if (colon == std::string::npos) return layer_list(choice, count, where);
  const std::string form = choice.substr(0, colon);
  const int64_t amount = number(std::string_view(choice).substr(colon + 1));
  if (amount < 1 || amount > count || (form != "first" && form != "every")) refuse_layers(choice, count, where);
  std::vector<int64_t> kept;
  for (int64_t layer = 0; layer < count; layer += form == "first" ? 1 : amount) {
    if (form == "every" || layer < amount) kept.push_back(layer);
  }
  return kept;
}

std::unique_ptr<TransformerModel> prune(const TransformerModel& model, const PruneOptions& options) {
  const at::NoGradGuard no_grad;
  return Pruner(model, options).run();
}

}  // namespace draftsmith::model
