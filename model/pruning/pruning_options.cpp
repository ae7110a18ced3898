// Options of pruning: their fields, the layers that a choice means, and whether a model can be pruned so.
#include <algorithm>
#include <charconv>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "base/error.h"
#include "model/families/family.h"
#include "model/pruning/pruning.h"

namespace draftsmith::model {

namespace {

[[noreturn]] void refuse_layers(const std::string& choice, int64_t count, const std::string& where) {
  throw UserError({.where = where,
                   .what = "does not say which layers to keep",
                   .expected = fmt::format("first:N, every:K, or a rising list of layers in 0..{}", count - 1),
                   .found = choice.substr(0, 100),
                   .hint = {}});
}

// Returns a whole number, or -1.
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

// Checks that each file is given exactly where it is used.
void check_files(const PruneOptions& options, const std::string& where, Problems& problems) {
  const auto wrong = [&](const char* option, const std::string& what, const std::string& expected) {
    problems.add({.where = where.empty() ? option : where + "." + option,
                  .what = what,
                  .expected = expected,
                  .found = {},
                  .hint = {}});
  };
  const bool measured = options.by == "activation";
  if (measured && !options.calibration) {
    wrong("calibration", "activations are measured on text", "a corpus (.h5)");
  }
  if (measured && options.ff_width == 0 && options.heads == 0) {
    wrong("by", "activations choose neurons and heads, and all of them stay", "ff_width or heads");
  }
  if (!measured && (options.calibration || options.calibration_examples)) {
    wrong("calibration", "weights are compared without text", "by = \"activation\", or no calibration");
  }
  if (options.vocabulary_size && !options.vocabulary_from) {
    wrong("vocabulary_from", "tokens are counted to choose a vocabulary", "a corpus (.h5)");
  }
}

// Checks of one model; each member adds its problems.
class Check {
 public:
  Check(const TransformerConfig& config, const PruneOptions& options, Problems& problems)
      : config_(config), options_(options), problems_(problems) {}

  void neurons() {
    const int64_t wanted = options_.ff_width;
    if (wanted > config_.ff_width) {
      wrong("ff_width", "the model has fewer neurons", fmt::format("at most {}", config_.ff_width), wanted);
    }
    if (shapes().ff_factor > 0 && wanted != 0 && wanted != config_.ff_width) {
      wrong("ff_width", "files of this family cannot hold another width", "0", wanted);
    }
  }

  void heads() {
    const int64_t wanted = options_.heads > 0 ? options_.heads : config_.heads;
    const int64_t group = config_.heads / config_.key_value_heads();
    if (wanted > config_.heads) {
      wrong("heads", "the model has fewer heads", fmt::format("at most {}", config_.heads), wanted);
    }
    if (wanted % group != 0) {
      wrong("heads", "splits a group of heads that share keys", fmt::format("a multiple of {}", group), wanted);
    }
    if (shapes().heads_make_width && wanted != config_.heads) {
      wrong("heads", "files of this family cannot hold fewer heads of the same width", "0", wanted);
    }
  }

  void layers() {
    if (config_.encoder_decoder) {
      layers_of(options_.encoder_layers, config_.encoder_layers, "encoder_layers");
    } else if (!options_.encoder_layers.empty()) {
      problems_.add({.where = "encoder_layers",
                     .what = "the model has no encoder",
                     .expected = "nothing",
                     .found = options_.encoder_layers,
                     .hint = {}});
    }
    layers_of(options_.decoder_layers, config_.decoder_layers, "decoder_layers");
  }

  void vocabulary(int64_t fewest) {
    if (!config_.draft_vocabulary.ids.empty()) {
      problems_.add({.where = "vocabulary_from",
                     .what = "the model's vocabulary has already been pruned",
                     .expected = "a model with all its ids",
                     .found = fmt::format("{} of {} ids", config_.vocabulary_rows(), config_.vocabulary),
                     .hint = "prune the original model"});
    }
    const int64_t wanted = options_.vocabulary_size.value_or(fewest);
    if (wanted >= fewest && wanted <= config_.vocabulary) return;
    wrong("vocabulary_size", wanted < fewest ? "the special tokens alone are more" : "the model has fewer ids",
          fmt::format("{} to {}", fewest, config_.vocabulary), wanted);
  }

 private:
  const FamilyShapes& shapes() const { return families().at(config_.family).shapes; }

  void wrong(const char* option, const std::string& what, const std::string& expected, int64_t found) {
    problems_.add({.where = option, .what = what, .expected = expected, .found = std::to_string(found), .hint = {}});
  }

  void layers_of(const std::string& choice, int64_t count, const std::string& where) {
    try {
      layers_to_keep(choice, count, where);
    } catch (const UserError& error) {
      problems_.add_all(error.problems());
    }
  }

  const TransformerConfig& config_;
  const PruneOptions& options_;
  Problems& problems_;
};

}  // namespace

Fields<PruneOptions> PruneOptions::fields() {
  using T = PruneOptions;
  constexpr const char* kLayers = "Layers that stay: first:N, every:K, or a list such as 0,2,5. Empty: all.";
  return Fields<T>("pruning options")
      .add("encoder_layers", &T::encoder_layers, kLayers)
      .add("decoder_layers", &T::decoder_layers, kLayers)
      .add("ff_width", &T::ff_width, Range{0, 1 << 20}, Unit{"neurons"},
           "Neurons that stay in each feed-forward layer. 0: all.")
      .add("heads", &T::heads, Range{0, 4096}, "Attention heads that stay in each layer. 0: all.")
      .add("by", &T::by, Choices{"magnitude", "activation"},
           "Choice of neurons and heads to keep: the largest weights, or the largest contribution to the hidden states "
           "on "
           "calibration text.")
      .add("calibration", &T::calibration, "Corpus (.h5) for by = activation.")
      .add("calibration_examples", &T::calibration_examples, Range{1}, Unit{"examples"},
           "Examples of it that are read, from the first. Absent: 512.")
      .add("vocabulary_from", &T::vocabulary_from,
           "Corpus (.h5) whose most frequent tokens the drafter keeps embeddings and logits for.")
      .add("vocabulary_size", &T::vocabulary_size, Range{1}, Unit{"ids"},
           "How many ids it keeps, special tokens included. Absent: all that occur there.")
      .check(check_files);
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

std::vector<int64_t> ids_that_stay(const TransformerConfig& config, const PruneEvidence& evidence) {
  std::set<int64_t> ids(config.eos.begin(), config.eos.end());
  ids.insert({config.pad, config.decoder_start});
  if (config.bos) ids.insert(*config.bos);
  if (evidence.unknown) ids.insert(*evidence.unknown);
  ids.insert(evidence.special_ids.begin(), evidence.special_ids.end());
  return {ids.begin(), ids.end()};
}

void require_prunable(const TransformerConfig& config, const PruneOptions& options, const PruneEvidence& evidence) {
  Problems problems;
  Check check(config, options, problems);
  check.neurons();
  check.heads();
  check.layers();
  if (options.vocabulary_from || !evidence.token_counts.empty()) {
    check.vocabulary(static_cast<int64_t>(ids_that_stay(config, evidence).size()));
  }
  problems.throw_if_any();
}

}  // namespace draftsmith::model
