// A drafter with a pruned vocabulary: its embedding and head have rows for some of its target's token ids only. The
// model still takes and returns the target's ids; VocabularyRows converts them at the embedding and after the head.
// Tokens without a row are embedded as a stand-in and get no probability.
#pragma once

#include <filesystem>

#include <nlohmann/json_fwd.hpp>

#include "base/aten.h"
#include "base/error.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

class ConfigReader;  // model/families/family.h

// The rows of ids in a model's embedding and head: the ids themselves, or the rows of a pruned vocabulary.
class VocabularyRows {
 public:
  VocabularyRows() = default;
  VocabularyRows(const TransformerConfig& config, at::Device device);

  bool pruned() const { return ids_.defined(); }
  // Returns the rows of tokens int64 [...]; the stand-in's row for tokens without one.
  at::Tensor of(const at::Tensor& tokens) const;
  // Returns the row of one token id below V, on the CPU.
  int64_t row_of(int64_t token) const { return pruned() ? row_of_.const_data_ptr<int64_t>()[token] : token; }
  // Returns whether tokens int64 [...] have their own row. bool [...]
  at::Tensor has(const at::Tensor& tokens) const;
  // Returns values of the rows [...,rows] as values of all ids [...,V], with `elsewhere` for ids without a row.
  // Differentiable.
  at::Tensor spread(const at::Tensor& values, double elsewhere) const;

 private:
  int64_t vocabulary_ = 0;
  at::Tensor ids_;     // [rows]; undefined: all ids have rows
  at::Tensor row_of_;  // [V]
};

// config.json keeps the target's `vocab_size` and token ids and adds `draft_vocab_size` (rows) and
// `draft_unknown_token_id` (the stand-in).
// draftsmith/vocabulary.safetensors holds, as EAGLE-3 drafters in the `speculators` library and vLLM do,
//   d2t  I64  [draft_vocab_size]  target id minus row: row i is the target's id i + d2t[i]; ids rise with rows
//   t2d  BOOL [vocab_size]        whether a target id has a row

// Reads the keys and the maps of a model directory, adding every problem. Returns an empty vocabulary if it has
// neither. `config` gives the size of the vocabulary.
DraftVocabulary read_draft_vocabulary(const std::filesystem::path& directory, ConfigReader& reader,
                                      const TransformerConfig& config, Problems& problems);

// Writes the maps and adds the keys to config.json's contents; nothing for a complete vocabulary. Errors: RunError.
void write_draft_vocabulary(const TransformerConfig& config, const std::filesystem::path& directory,
                            nlohmann::ordered_json& config_json);

}  // namespace draftsmith::model
