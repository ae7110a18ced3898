#include "model/pruning/pruning.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <string_view>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/error.h"
#include "base/util.h"
#include "model/families/family.h"

namespace draftsmith::model {
namespace {

[[noreturn]] void refuse_layers(const std::string& choice, int64_t count, const std::string& where) {
  throw UserError({.where = where,
                   .what = "does not say which layers to keep",
                   .expected = fmt::format("first:N, every:K, or a rising list of layers in 0..{}", count - 1),
                   .found = choice.substr(0, 100)});
}

std::vector<int64_t> layer_list(const std::string& choice, int64_t count, const std::string& where) {
  std::vector<int64_t> layers;
  for (size_t begin = 0; begin <= choice.size();) {
    const size_t end = std::min(choice.find(',', begin), choice.size());
    const int64_t layer = parse_whole<int64_t>(std::string_view(choice).substr(begin, end - begin)).value_or(-1);
    if (layer < 0 || layer >= count || (!layers.empty() && layer <= layers.back())) refuse_layers(choice, count, where);
    layers.push_back(layer);
    begin = end + 1;
  }
  return layers;
}

// Returns the ids that stay whatever the counts, rising.
std::vector<int64_t> ids_that_stay(const TransformerConfig& config, const PruneEvidence& evidence) {
  std::set<int64_t> ids(config.eos.begin(), config.eos.end());
  ids.insert({config.pad, config.decoder_start});
  if (config.bos) ids.insert(*config.bos);
  if (evidence.unknown) ids.insert(*evidence.unknown);
  ids.insert(evidence.special_ids.begin(), evidence.special_ids.end());
  return {ids.begin(), ids.end()};
}

}  // namespace

Fields<PruneOptions> PruneOptions::fields() {
  using T = PruneOptions;
  constexpr const char* kLayers = "Layers that stay: first:N, every:K, or a list such as 0,2,5. Empty: all.";
  return Fields<T>("pruning options")
      .add("encoder_layers", &T::encoder_layers, kLayers)
      .add("decoder_layers", &T::decoder_layers, kLayers)
      .add("ff_width", &T::ff_width, Range{0, 1 << 20}, Unit{"neurons"},
           "Neurons that stay in each feed-forward layer. 0: all.")
      .add("vocabulary_from", &T::vocabulary_from,
           "Corpus (.h5) whose most frequent tokens the drafter keeps embeddings and logits for.")
      .add("vocabulary_size", &T::vocabulary_size, Range{1}, Unit{"ids"},
           "How many ids it keeps, special tokens included. Absent: all that occur there.")
      .check([](const PruneOptions& options, const std::string& where, Problems& problems) {
        if (!options.vocabulary_size || options.vocabulary_from) return;
        problems.add({.where = where.empty() ? "vocabulary_from" : where + ".vocabulary_from",
                      .what = "tokens are counted to choose a vocabulary",
                      .expected = "a corpus (.h5)"});
      });
}

std::vector<int64_t> layers_to_keep(const std::string& choice, int64_t count, const std::string& where) {
  std::vector<int64_t> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), int64_t{0});
  if (choice.empty()) return all;
  const size_t colon = choice.find(':');
  if (colon == std::string::npos) return layer_list(choice, count, where);
  const std::string form = choice.substr(0, colon);
  const int64_t amount = parse_whole<int64_t>(std::string_view(choice).substr(colon + 1)).value_or(0);
  if (amount < 1 || amount > count || (form != "first" && form != "every")) refuse_layers(choice, count, where);
  std::vector<int64_t> kept;
  for (int64_t layer = 0; layer < count; layer += form == "first" ? 1 : amount) {
    if (form == "every" || layer < amount) kept.push_back(layer);
  }
  return kept;
}

void require_prunable(const TransformerConfig& config, const PruneOptions& options, const PruneEvidence& evidence,
                      const std::string& table) {
  Problems problems;
  const auto wrong = [&](const char* option, const std::string& what, const std::string& expected,
                         const std::string& found) {
    problems.add({.where = table + option, .what = what, .expected = expected, .found = found});
  };
  if (options.ff_width > config.ff_width) {
    wrong("ff_width", "the model has fewer neurons", fmt::format("at most {}", config.ff_width),
          std::to_string(options.ff_width));
  }
  const bool fixed = families().at(config.family).shapes.ff_factor > 0;
  if (fixed && options.ff_width != 0 && options.ff_width != config.ff_width) {
    wrong("ff_width", "files of this family cannot hold another number", "0", std::to_string(options.ff_width));
  }
  const auto check_layers = [&](const std::string& choice, int64_t count, const std::string& where) {
    try {
      layers_to_keep(choice, count, where);
    } catch (const UserError& error) {
      problems.add_all(error.problems());
    }
  };
  if (config.encoder_decoder) {
    check_layers(options.encoder_layers, config.encoder_layers, "encoder_layers");
  } else if (!options.encoder_layers.empty()) {
    wrong("encoder_layers", "the model has no encoder", "nothing", options.encoder_layers);
  }
  check_layers(options.decoder_layers, config.decoder_layers, "decoder_layers");
  if (options.vocabulary_from || !evidence.token_counts.empty()) {
    if (!config.draft_vocabulary.ids.empty()) {
      wrong("vocabulary_from", "the model's vocabulary has already been pruned", "the original model with all its ids",
            fmt::format("{} of {} ids", config.vocabulary_rows(), config.vocabulary));
    }
    const auto fewest = static_cast<int64_t>(ids_that_stay(config, evidence).size());
    const int64_t wanted = options.vocabulary_size.value_or(fewest);
    if (wanted < fewest || wanted > config.vocabulary) {
      wrong("vocabulary_size", wanted < fewest ? "the special tokens alone are more" : "the model has fewer ids",
            fmt::format("{} to {}", fewest, config.vocabulary), std::to_string(wanted));
    }
  }
  problems.throw_if_any();
}

namespace {

// Returns the `size` most frequent ids by counts [V] (the lower id if counts are equal), always with those in `kept`;
// rising.
std::vector<int64_t> most_frequent_ids(const std::vector<int64_t>& counts, const std::vector<int64_t>& kept,
                                       int64_t size) {
  std::vector<int64_t> order(counts.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::vector<bool> always(counts.size(), false);
  for (const int64_t id : kept) always.at(static_cast<size_t>(id)) = true;
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
    return always[i] != always[j] ? always[i] : counts[i] > counts[j];
  });
  order.resize(static_cast<size_t>(size));
  std::sort(order.begin(), order.end());
  return order;
}

// Indices of the `kept` highest scores, rising.
at::Tensor highest(const at::Tensor& scores, int64_t kept) {
  return std::get<0>(std::get<1>(scores.topk(kept)).sort());
}

class Pruner {
 public:
  Pruner(const TransformerModel& model, const PruneOptions& options, const PruneEvidence& evidence)
      : from_(model), config_(model.config()), options_(options), evidence_(evidence) {}

  std::unique_ptr<TransformerModel> run() {
    require_prunable(config_, options_, evidence_);
    for (const auto& [name, tensor] : from_.parameters()) {
      if (!is_block(name)) parameters_[name] = tensor.detach().to(at::kCPU, at::kFloat, false, true);
    }
    if (!evidence_.token_counts.empty()) prune_vocabulary();
    if (config_.encoder_decoder) prune_stack("encoder", options_.encoder_layers, config_.encoder_layers);
    prune_stack("decoder", options_.decoder_layers, config_.decoder_layers);
    config_.ff_width = ff_width();
    return std::make_unique<TransformerModel>(config_, std::move(parameters_));
  }

  // Returns the ids that stay, by counts that there are.
  DraftVocabulary vocabulary() const {
    const std::vector<int64_t>& counts = evidence_.token_counts;
    const std::vector<int64_t> special = ids_that_stay(config_, evidence_);
    int64_t size = static_cast<int64_t>(special.size());
    for (size_t id = 0; id < counts.size(); ++id) {
      size += counts[id] > 0 && !std::binary_search(special.begin(), special.end(), static_cast<int64_t>(id)) ? 1 : 0;
    }
    const std::vector<int64_t> ids = most_frequent_ids(counts, special, options_.vocabulary_size.value_or(size));
    return {ids, evidence_.unknown ? *evidence_.unknown : nearest_to_the_others(ids, special)};
  }

 private:
  int64_t ff_width() const { return options_.ff_width > 0 ? options_.ff_width : from_.config().ff_width; }

  static bool is_block(const std::string& name) {
    return name.find("_attention.") != std::string::npos || name.find(".feed_forward.") != std::string::npos;
  }

  void prune_vocabulary() {
    config_.draft_vocabulary = vocabulary();
    const at::Tensor rows = at::tensor(config_.draft_vocabulary.ids, at::kLong);
    for (const char* name : {"embedding.weight", "head.weight", "head.bias"}) {
      if (has(name)) parameters_[name] = value(name).index_select(0, rows);
    }
  }

  // Returns the stand-in among `ids`, not a special one if there are others: the id whose embedding is nearest to the
  // mean of the removed ids.
  int64_t nearest_to_the_others(const std::vector<int64_t>& ids, const std::vector<int64_t>& special) const {
    std::vector<int64_t> candidates;
    std::set_difference(ids.begin(), ids.end(), special.begin(), special.end(), std::back_inserter(candidates));
    if (candidates.empty()) candidates = ids;
    const at::Tensor embedding = value("embedding.weight");  // [V,D]
    at::Tensor weights = at::tensor(evidence_.token_counts, at::kFloat);
    weights.index_fill_(0, at::tensor(ids, at::kLong), 0);
    if (weights.sum().item<double>() == 0) weights.fill_(1).index_fill_(0, at::tensor(ids, at::kLong), 0);
    const at::Tensor mean = weights.matmul(embedding) / weights.sum().clamp_min(1);
    const at::Tensor distances = (embedding.index_select(0, at::tensor(candidates, at::kLong)) - mean).norm(2, 1);
    return candidates[static_cast<size_t>(distances.argmin().item<int64_t>())];
  }

  at::Tensor value(const std::string& name) const {
    return from_.parameters().at(name).detach().to(at::kCPU, at::kFloat);
  }
  bool has(const std::string& name) const { return from_.parameters().contains(name); }

  void prune_stack(const std::string& stack, const std::string& choice, int64_t count) {
    const std::vector<int64_t> kept = layers_to_keep(choice, count, stack + "_layers");
    for (size_t to = 0; to < kept.size(); ++to) {
      copy_layer(fmt::format("{}.{}.", stack, kept[to]), fmt::format("{}.{}.", stack, to));
    }
    (stack == "encoder" ? config_.encoder_layers : config_.decoder_layers) = static_cast<int64_t>(kept.size());
    if (stack != "decoder") return;
    config_.unrotated_layers = renumbered(from_.config().unrotated_layers, kept);
    config_.window_layers = renumbered(from_.config().window_layers, kept);
  }

  // Returns the new numbers of those of some layers that are kept.
  static std::vector<int64_t> renumbered(const std::vector<int64_t>& layers, const std::vector<int64_t>& kept) {
    std::vector<int64_t> numbers;
    for (size_t to = 0; to < kept.size(); ++to) {
      if (std::ranges::binary_search(layers, kept[to])) numbers.push_back(static_cast<int64_t>(to));
    }
    return numbers;
  }

  // Returns for each neuron the product of the norms of its row in the up (and gate) matrix and its column in the down
  // matrix. [F]
  at::Tensor neuron_scores(const std::string& prefix) const {
    const at::Tensor scores = value(prefix + ".up.weight").norm(2, 1) * value(prefix + ".down.weight").norm(2, 0);
    return from_.config().gated ? scores * value(prefix + ".gate.weight").norm(2, 1) : scores;
  }

  // Copies the parameters of a layer, whose names begin with `from`.
  void copy_layer(const std::string& from, const std::string& to) {
    at::Tensor neurons;
    if (ff_width() != from_.config().ff_width) neurons = highest(neuron_scores(from + "feed_forward"), ff_width());
    for (const auto& [name, tensor] : from_.parameters()) {
      if (!name.starts_with(from) || !is_block(name)) continue;
      const std::string part = name.substr(from.size());
      at::Tensor copied = tensor.detach().to(at::kCPU, at::kFloat, false, true);
      const bool rises = part.starts_with("feed_forward.up.") || part.starts_with("feed_forward.gate.");
      if (neurons.defined() && rises) copied = copied.index_select(0, neurons);
      if (neurons.defined() && part == "feed_forward.down.weight") copied = copied.index_select(1, neurons);
      parameters_[to + part] = copied;
    }
  }

  const TransformerModel& from_;
  TransformerConfig config_;
  const PruneOptions& options_;
  const PruneEvidence& evidence_;
  std::map<std::string, at::Tensor> parameters_;
};

}  // namespace

std::unique_ptr<TransformerModel> prune(const TransformerModel& model, const PruneOptions& options,
                                        const PruneEvidence& evidence) {
  const at::NoGradGuard no_grad;
  return Pruner(model, options, evidence).run();
}

DraftVocabulary kept_vocabulary(const TransformerModel& model, const PruneOptions& options,
                                const PruneEvidence& evidence) {
  const at::NoGradGuard no_grad;
  return Pruner(model, options, evidence).vocabulary();
}

}  // namespace draftsmith::model
