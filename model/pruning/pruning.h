// Pruning cuts a smaller model out of a trained one. Layers are chosen by the options; feed-forward neurons by
// their weights; the vocabulary by token counts (model/transformer/draft_vocabulary.h). The result is an ordinary
// model, ready for alignment or distillation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "model/transformer/transformer_config.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

struct PruneOptions {
  std::string encoder_layers = {};  // which layers stay, see layers_to_keep; empty: all
  std::string decoder_layers = {};
  int64_t ff_width = 0;                                       // neurons that stay in each layer; 0: all
  std::optional<std::filesystem::path> vocabulary_from = {};  // corpus whose tokens are counted
  std::optional<int64_t> vocabulary_size = {};                // ids that stay; absent: those that occur
  static Fields<PruneOptions> fields();
};

// Tokens that the options refer to. The caller counts them.
struct PruneEvidence {
  std::vector<int64_t> token_counts = {};  // [V] of vocabulary_from; empty: the vocabulary stays
  std::vector<int64_t> special_ids = {};   // of the tokenizer: they stay, with those of the configuration
  std::optional<int64_t> unknown = {};     // the tokenizer's unknown token, stand-in for ids that go
};

// Returns the indices of the layers that stay, of `count`: "first:N" keeps the first N, "every:K" layers 0, K, 2K, ...,
// and a list "0,2,5" in rising order those layers; an empty choice keeps all. Errors: UserError at `where` for anything
// else, and for layers that do not exist.
std::vector<int64_t> layers_to_keep(const std::string& choice, int64_t count, const std::string& where);

// Checks the options against a model's configuration and the evidence's special ids. Callers whose other measurements
// take long call it first. Errors: those of prune(), all at once, at options behind the name of their `table`.
void require_prunable(const TransformerConfig& config, const PruneOptions& options, const PruneEvidence& evidence,
                      const std::string& table = "");

// Returns the pruned model with fp32 parameters of its own. Neurons are chosen in each layer separately; order is kept.
// The vocabulary keeps the most frequent ids and all special ones. The stand-in for the other ids is the unknown token
// or, if there is none, the token whose embedding is nearest to the mean of the removed ids, weighted by their counts.
// Errors (UserError): more than the model has, widths that the family's files cannot hold, encoder layers of a model
// without an encoder, a vocabulary smaller than the special ids or already pruned.
std::unique_ptr<TransformerModel> prune(const TransformerModel& model, const PruneOptions& options,
                                        const PruneEvidence& evidence = {});

// Returns the ids that prune() keeps, without a model of them. There are token counts, and require_prunable() passes.
DraftVocabulary kept_vocabulary(const TransformerModel& model, const PruneOptions& options,
                                const PruneEvidence& evidence);

}  // namespace draftsmith::model
