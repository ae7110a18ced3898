#include "recipes/pruning.h"

#include <functional>
#include <numeric>
#include <optional>
#include <span>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/device.h"
#include "base/logging.h"
#include "base/signals.h"
#include "data/corpus/corpus.h"
#include "data/tokenizers/tokenizer.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/models/exits.h"
#include "model/transformer/parameters.h"
#include "recipes/stage.h"
#include "recipes/stages/data_stages.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int64_t>;

constexpr int64_t kCalibrationExamples = 512;
constexpr const char* kNothingWritten = "nothing was written";

// Receives source and target of an example, and returns whether it wants another.
using OnExample = std::function<bool(Ids source, Ids target)>;

[[noreturn]] void refuse(const fs::path& file, const std::string& what, const std::string& expected,
                         const std::string& hint) {
  throw UserError({.where = file.string(), .what = what, .expected = expected, .found = {}, .hint = hint});
}

Ids ids_of(std::span<const int32_t> tokens) {
  return {tokens.begin(), tokens.end()};
}

// Model directory with its tokenizer, which corpora must share.
struct Whole {
  std::unique_ptr<model::TransformerModel> model;
  std::unique_ptr<data::Tokenizer> tokenizer;  // null if the directory has none

  void read(const fs::path& file, const OnExample& on_example) const {
    const data::Corpus corpus(file);
    if (tokenizer) {
      require_same_tokenizer(tokenizer->hash(), corpus.info().tokenizer_hash, file,
                             "prepare it with the model's own tokenizer");
    }
    if (corpus.info().vocabulary > model->config().vocabulary) {
      refuse(file, "the corpus has more token ids than the model",
             fmt::format("at most {}", model->config().vocabulary), "prepare it with the model's own tokenizer");
    }
    for (int64_t i = 0; i < corpus.size(); ++i) {
      if (!on_example(ids_of(corpus.source(i)), ids_of(corpus.target(i)))) return;
    }
  }
};

model::TokenBatch one_row(const Ids& tokens) {
  const auto length = static_cast<int64_t>(tokens.size());
  return {at::tensor(tokens, at::kLong).view({1, length}), {length}};  // [1,L]
}

// Returns the model's input for an example with teacher forcing, as in training.
model::ForwardInput forward_input(const model::TransformerConfig& config, const Ids& source, const Ids& target) {
  model::ForwardInput input;
  Ids decoder = config.encoder_decoder ? Ids{} : source;
  if (decoder.empty()) decoder.push_back(config.decoder_start);
  if (!target.empty()) decoder.insert(decoder.end(), target.begin(), target.end() - 1);
  if (config.max_positions > 0 && static_cast<int64_t>(decoder.size()) > config.max_positions) {
    decoder.resize(static_cast<size_t>(config.max_positions));
  }
  if (config.encoder_decoder) input.source = one_row(source);
  input.target = one_row(decoder);
  return input;
}

model::ActivationMoments measure_activations(const Whole& whole, const model::PruneOptions& options) {
  const at::NoGradGuard no_grad;
  const fs::path& file = *options.calibration;
  const model::TransformerConfig& config = whole.model->config();
  model::ActivationMoments moments(config);
  int64_t left = options.calibration_examples.value_or(kCalibrationExamples);
  whole.read(file, [&](const Ids& source, const Ids& target) {
    throw_if_stop_requested(kNothingWritten);
    if (source.empty() && (target.empty() || config.encoder_decoder)) return true;
    model::ForwardInput input = forward_input(config, source, target);
    input.observer = moments.observer();
    whole.model->forward(input);
    return --left > 0;
  });
  if (moments.empty()) refuse(file, "there is no text to calibrate on", "at least one example", {});
  return moments;
}

// Returns how often each id occurs, in sources and targets.
std::vector<int64_t> count_tokens(const Whole& whole, const fs::path& file) {
  std::vector<int64_t> counts(static_cast<size_t>(whole.model->config().vocabulary), 0);
  int64_t tokens = 0;
  whole.read(file, [&](const Ids& source, const Ids& target) {
    throw_if_stop_requested(kNothingWritten);
    for (const Ids* side : {&source, &target}) {
      for (const int64_t id : *side) ++counts[static_cast<size_t>(id)];
      tokens += static_cast<int64_t>(side->size());
    }
    return true;
  });
  if (tokens == 0) refuse(file, "there are no tokens to count", "at least one", {});
  return counts;
}

std::vector<int64_t> special_ids(const data::Tokenizer& tokenizer) {
  std::vector<int64_t> ids;
  for (const int64_t id : {tokenizer.pad(), tokenizer.eos(), tokenizer.bos(), tokenizer.unk()}) {
    if (id >= 0) ids.push_back(id);
  }
  return ids;
}

// Returns a description of one line, two with a pruned vocabulary. `counts`: of the tokens in the counted text.
std::string describe_pruning(const model::TransformerConfig& before, const model::TransformerConfig& after,
                             const std::vector<int64_t>& counts) {
  const auto millions = [](const model::TransformerConfig& config) {
    return static_cast<double>(model::count_numbers(config)) / 1e6;
  };
  std::string layers = fmt::format("{} of {} layers", after.decoder_layers, before.decoder_layers);
  if (before.encoder_decoder) {
    layers = fmt::format("{}+{} of {}+{} layers", after.encoder_layers, after.decoder_layers, before.encoder_layers,
                         before.decoder_layers);
  }
  std::string text =
      fmt::format("{:.1f} M of {:.1f} M parameters; {}, {} of {} heads and {} of {} neurons a layer", millions(after),
                  millions(before), layers, after.heads, before.heads, after.ff_width, before.ff_width);
  if (counts.empty()) return text;
  int64_t kept = 0;
  for (const int64_t id : after.draft_vocabulary.ids) kept += counts[static_cast<size_t>(id)];
  const auto all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  return text + fmt::format("\n  {} of {} ids, which cover {:.2f} % of the counted tokens", after.vocabulary_rows(),
                            before.vocabulary, 100.0 * static_cast<double>(kept) / static_cast<double>(all));
}

}  // namespace

std::string prune_directory(const fs::path& model, const fs::path& out, const model::PruneOptions& options,
                            at::Device device) {
  model::require_free_place(out);
  if (fs::exists(model::exits_directory(model))) {
    log_info("{}: its exits are not copied, because they belong to the whole model", model.string());
  }
  Whole whole{model::load_model(model, {.device = device, .pack = false}), nullptr};
  if (data::has_tokenizer(model)) {
    whole.tokenizer = data::load_tokenizer(model);
    model::require_vocabulary_fits(whole.model->config(), whole.tokenizer->vocabulary(), model.string());
  }
  model::PruneEvidence evidence;
  if (whole.tokenizer) {
    evidence.special_ids = special_ids(*whole.tokenizer);
    if (whole.tokenizer->unk() >= 0) evidence.unknown = whole.tokenizer->unk();
  }
  model::require_prunable(whole.model->config(), options, evidence);
  std::optional<model::ActivationMoments> activations;
  if (options.by == "activation") evidence.activations = &activations.emplace(measure_activations(whole, options));
  if (options.vocabulary_from) evidence.token_counts = count_tokens(whole, *options.vocabulary_from);
  const auto pruned = model::prune(*whole.model, options, evidence);
  throw_if_stop_requested(kNothingWritten);
  model::SaveOptions save;
  save.generation = model::load_generation_config(model);
  if (whole.tokenizer) save.tokenizer = whole.tokenizer->file();
  model::save_model(out, *pruned, save);
  return describe_pruning(whole.model->config(), pruned->config(), evidence.token_counts);
}

// ---- kind = "prune": cuts a smaller model out of a trained one
// Makes model/, for a train stage's `from` or a drafter.

namespace {

struct PruneStageOptions : model::PruneOptions {
  std::filesystem::path model;

  static Fields<PruneStageOptions> fields() {
    return Fields<PruneStageOptions>("prune stage (kind = \"prune\"): makes model/")
        .add("model", &PruneStageOptions::model, Required{}, "Model directory to cut the new model from.")
        .inherit<model::PruneOptions>();
  }
};

// Starts from the beginning after an interruption, since pruning takes little time; removes files of a killed run.
void run_prune(const PruneStageOptions& options, const StageContext& run) {
  for (const auto& entry : std::filesystem::directory_iterator(run.directory)) {
    const std::string name = entry.path().filename();
    if (name == "model" || name.starts_with(".model")) std::filesystem::remove_all(entry.path());
  }
  log_info("  {}",
           prune_directory(options.model, run.directory / "model", options, choose_device(run.execution.device)));
}

}  // namespace

StageKind prune_stage() {
  return make_stage_kind<PruneStageOptions>("prune", 1, run_prune);
}

}  // namespace draftsmith::recipes
