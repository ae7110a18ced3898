// Tandem secondaries (Nair et al. 2024, section 3): a small autoregressive model whose layers read a large primary's
// representations. Their start from a trained model, and their directories.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/transformer/parameters.h"
#include "model/transformer/transformer_config.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

// The secondary reads the primary's representations of all tokens but those of the current block, equation (2):
//   ŷ_u^(j) = FF_Tandem^(j)(x_u^(ℓ(j)))                                    for u < b, b = ⌊i/γ⌋γ
//   y_i^(j+1) = layer j+1 of the secondary at i, over ŷ_u^(j) for u < b and its own y_u^(j) for b ≤ u ≤ i
// with j = 0..L_S-1, ℓ(j) in 0..L_L (0: the primary's embedding output) and FF_Tandem linear. ŷ enters through the
// secondary's own input norm and its key and value projections. A secondary is a TransformerModel with config.tandem.
//
// A Tandem directory is the secondary's model directory, named DraftsmithTandem<architecture> so that nobody loads it
// as an ordinary model. Its primary lies in primary/ inside it, or is another directory named by its path (relative to
// this one) and its model_hash(). Its part in config.json:
//   "draftsmith_tandem": {"primary_width", "primary_layers", "layer_map", "block", "primary": {"path", "sha256"}}

// Returns the kind of Tandem secondaries.
const ModelKind& tandem_kind();

// Returns the even layer map ℓ(j) = ⌊(j+1)·L_L/L_S⌋. [secondary_layers]
std::vector<int64_t> default_layer_map(int64_t secondary_layers, int64_t primary_layers);

// Refuses a secondary, of a Tandem or to become one, that cannot read this primary: kind, start and end ids and, for a
// Tandem secondary, the primary's width and layers must agree (check_pair). Errors: UserError with every disagreement
// and both names.
void require_tandem_pair(const TransformerConfig& secondary, const TransformerConfig& primary, const PairNames& names);

struct TandemStart {
  std::vector<int64_t> layer_map;  // empty: the default
  int64_t block = 2;               // γ
  ProjectionStart projections = ProjectionStart::kRandom;
  uint64_t seed = 1;  // of random projections
};

// Makes a Tandem secondary from an ordinary model (loaded unpacked), which gives its decoder's parameters; an encoder
// is left behind. `primary` may be packed. Errors: UserError (require_tandem_pair,
// a layer map that does not fit).
std::unique_ptr<TransformerModel> make_tandem_secondary(const TransformerModel& secondary,
                                                        const TransformerModel& primary, const TandemStart& start = {});

// Returns the configuration of a Tandem secondary to be trained from random weights: `secondary` with its Tandem part,
// without an encoder. Errors: as make_tandem_secondary().
TransformerConfig tandem_config(TransformerConfig secondary, const TransformerConfig& primary, const TandemStart& start,
                                const PairNames& names);

struct TandemSaveOptions {
  SaveOptions files = {};  // of both models
  // Exactly one of the two is given: a primary in memory (unpacked), written into primary/ ...
  const TransformerModel* primary = nullptr;
  // ... or a model directory, referenced or, with copy_primary, copied into primary/.
  std::filesystem::path primary_directory = {};
  bool copy_primary = false;
  // True if config.json names a primary in memory by its hash, for which it is read back; a checkpoint need not.
  bool record_primary = true;
};

// Writes a Tandem directory, atomically. Errors: as save_model.
void save_tandem(const std::filesystem::path& directory, const TransformerModel& secondary,
                 const TandemSaveOptions& options);

}  // namespace draftsmith::model
