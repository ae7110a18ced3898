#include "recipes/pruning.h"

#include <memory>
#include <numeric>

#include <fmt/format.h>

#include "base/logging.h"
#include "base/signals.h"
#include "data/corpus/corpus.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/models/exits.h"
#include "model/transformer/parameters.h"
#include "recipes/export/export_model.h"
#include "recipes/stage.h"
#include "recipes/stages/data_stages.h"

namespace draftsmith::recipes {

namespace fs = std::filesystem;

std::vector<int64_t> count_tokens(const fs::path& file, int64_t vocabulary, const data::Tokenizer* tokenizer,
                                  bool sources) {
  const data::Corpus corpus(file);
  const char* prepare = "prepare it with the model's own tokenizer";
  if (tokenizer != nullptr) require_same_tokenizer(tokenizer->hash(), corpus.info().tokenizer_hash, file, prepare);
  if (corpus.info().vocabulary > vocabulary) {
    throw UserError({file.string(), "the corpus has more token ids than the model",
                     fmt::format("at most {}", vocabulary), std::to_string(corpus.info().vocabulary), prepare});
  }
  if ((sources ? corpus.info().source_tokens : 0) + corpus.info().target_tokens == 0) {
    throw UserError({file.string(), "there are no tokens to count", "at least one", "none", ""});
  }
  std::vector<int64_t> counts(static_cast<size_t>(vocabulary), 0);
  for (int64_t i = 0; i < corpus.size(); ++i) {
    work_point();
    for (const auto& ids : {sources ? corpus.source(i) : std::span<const int32_t>(), corpus.target(i)}) {
      for (const int32_t id : ids) ++counts[static_cast<size_t>(id)];
    }
  }
  return counts;
}

namespace {

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
  std::string text = fmt::format("{:.1f} M of {:.1f} M parameters; {}, {} of {} neurons a layer", millions(after),
                                 millions(before), layers, after.ff_width, before.ff_width);
  if (counts.empty()) return text;
  int64_t kept = 0;
  for (const int64_t id : after.draft_vocabulary.ids) kept += counts[static_cast<size_t>(id)];
  const auto all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  return text + fmt::format("\n  {} of {} ids, which cover {:.2f} % of the counted tokens", after.vocabulary_rows(),
                            before.vocabulary, 100.0 * static_cast<double>(kept) / static_cast<double>(all));
}

}  // namespace

std::string prune_directory(const fs::path& model, const fs::path& out, const model::PruneOptions& options) {
  model::require_free_place(out);
  Progress work({.title = "pruning"}, "nothing was written");
  if (fs::exists(model::exits_directory(model))) {
    log_info("{}: its exits are not copied, because they belong to the whole model", model.string());
  }
  const model::ModelDirectory opened(model);
  model::SaveOptions save;
  save.dtype = stored_type(opened);
  const auto whole = load_whole(opened, save.dtype);
  save.generation = opened.generation();
  model::PruneEvidence evidence;
  std::unique_ptr<data::Tokenizer> tokenizer;
  if (data::has_tokenizer(model)) {
    tokenizer = data::load_tokenizer(model);
    model::require_vocabulary_fits(whole->config(), tokenizer->vocabulary(), model.string());
    evidence.special_ids = special_ids(*tokenizer);
    if (tokenizer->unk() >= 0) evidence.unknown = tokenizer->unk();
    save.tokenizer = tokenizer->file();
  }
  model::require_prunable(whole->config(), options, evidence);
  if (options.vocabulary_from) {
    evidence.token_counts = count_tokens(*options.vocabulary_from, whole->config().vocabulary, tokenizer.get(), true);
  }
  const auto pruned = model::prune(*whole, options, evidence);
  work_point();
  model::save_model(out, *pruned, save);
  return describe_pruning(whole->config(), pruned->config(), evidence.token_counts);
}

namespace {

struct PruneStageOptions : model::PruneOptions {
  std::filesystem::path model;

  static Fields<PruneStageOptions> fields() {
    return Fields<PruneStageOptions>("prune stage (kind = \"prune\"): makes model/")
        .add("model", &PruneStageOptions::model, Required{}, "Model directory to cut the new model from.")
        .inherit<model::PruneOptions>();
  }
};

// Starts from the beginning after an interruption, since pruning takes little time.
void run_prune(const PruneStageOptions& options, const StageContext& run) {
  std::filesystem::remove_all(run.directory / "model");
  log_info("  {}", prune_directory(options.model, run.directory / "model", options));
}

}  // namespace

std::vector<StageKind> prune_stages() {
  return {make_stage_kind<PruneStageOptions>("prune", 2, run_prune)};
}

}  // namespace draftsmith::recipes
