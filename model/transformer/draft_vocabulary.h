// A drafter pruned to some of its target's token ids: its embedding and head have rows for these alone, while the model
// goes on speaking the target's ids. Tokens without a row are embedded as a stand-in and get no probability.
//
// In a model directory: config.json keeps the target's `vocab_size` and its token ids and adds `draft_vocab_size`
// (rows) and `draft_unknown_token_id` (the stand-in); draftsmith/vocabulary.safetensors holds, as EAGLE-3 drafters in
// the `speculators` library and vLLM do,
//   d2t  I64  [draft_vocab_size]  target id minus row: row i is the target's id i + d2t[i]; ids rise with rows
//   t2d  BOOL [vocab_size]        whether a target id has a row
#pragma once

#include <filesystem>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/aten.h"
#include "model/families/config_reader.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

// Where ids lie in a model's embedding and head: at their own number, or at the rows of a pruned vocabulary.
class VocabularyRows {
 public:
  VocabularyRows() = default;
  VocabularyRows(const TransformerConfig& config, at::Device device);

  bool pruned() const { return ids_.defined(); }
  // Rows of tokens int64 [...]; the stand-in's for those that have none.
  at::Tensor of(const at::Tensor& tokens) const;
  // Which tokens int64 [...] have a row of their own. bool [...]
  at::Tensor has(const at::Tensor& tokens) const;
  // Values of the rows [...,rows] as values of all ids [...,V], `elsewhere` for ids without a row. Differentiable.
  at::Tensor spread(const at::Tensor& values, double elsewhere) const;

 private:
  int64_t vocabulary_ = 0;
  at::Tensor ids_;     // [rows]; undefined: all ids have rows
  at::Tensor row_of_;  // [V]
};

// The `size` most frequent ids by counts [V] (the lower id where they are equal), always with those in `kept`; rising.
// Errors: std::logic_error for a size below the number of kept ids or above V.
std::vector<int64_t> most_frequent_ids(const std::vector<int64_t>& counts, const std::vector<int64_t>& kept,
                                       int64_t size);

// Reads the keys and the maps of a model directory, adding every problem; an empty one when it has neither. `config`
// gives the vocabulary.
DraftVocabulary read_draft_vocabulary(const std::filesystem::path& directory, ConfigReader& reader,
                                      const TransformerConfig& config, Problems& problems);

// Writes the maps and adds the keys to config.json's contents; nothing for a whole vocabulary. Errors: RunError.
void write_draft_vocabulary(const TransformerConfig& config, const std::filesystem::path& directory,
                            nlohmann::ordered_json& config_json);

}  // namespace draftsmith::model
