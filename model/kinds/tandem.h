// Tandem transformers (Nair et al. 2024, section 3): a small autoregressive secondary whose layers read a large
// primary's representations of all tokens but those of the current block, equation (2):
//   ŷ_u^(j) = FF_Tandem^(j)(x_u^(ℓ(j)))                                    for u < b, b = ⌊i/γ⌋γ
//   y_i^(j+1) = layer j+1 of the secondary at i, over ŷ_u^(j) for u < b and its own y_u^(j) for b ≤ u ≤ i
// with j = 0..L_S-1, ℓ(j) in 0..L_L (0: the primary's embedding output) and FF_Tandem linear. ŷ enters through the
// secondary's own input norm and its key and value projections. A secondary is a TransformerModel with config.tandem.
//
// A Tandem directory is the secondary's model directory, named DraftsmithTandem<architecture> so that nobody loads it
// as an ordinary model (model/kinds/tandem_config.h). Its primary lies in primary/ inside it, or is another directory
// named by its path (relative to this one) and its model_hash().
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/files/checkpoint.h"
#include "model/kinds/tandem_config.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

// Returns the kind of Tandem secondaries.
const ModelKind& tandem_kind();

// Returns the even layer map ℓ(j) = ⌊(j+1)·L_L/L_S⌋. [secondary_layers]
std::vector<int64_t> default_layer_map(int64_t secondary_layers, int64_t primary_layers);

// Two models as messages name them.
struct TandemNames {
  std::string secondary;
  std::string primary;
};
// Whether a secondary, Tandem or to become one, can read this primary: kind, vocabulary, token ids and, for a Tandem
// secondary, the primary's width and layers. Errors: UserError with every disagreement and both names.
void require_tandem_pair(const TransformerConfig& secondary, const TransformerConfig& primary,
                         const TandemNames& names);

// How projections begin: random (deviation D_L^-½, so that their output is as large as their input), or the unit
// matrix, cut or padded with zeros where widths differ.
enum class ProjectionStart { kRandom, kIdentity };

struct TandemStart {
  std::vector<int64_t> layer_map;  // empty: the default
  int64_t block = 2;               // γ
  ProjectionStart projections = ProjectionStart::kRandom;
  uint64_t seed = 1;  // of random projections
};

// A Tandem secondary from an ordinary model (loaded unpacked), which gives its decoder's parameters; an encoder is left
// behind. `primary` may be packed. Errors: UserError (check_tandem_shape, require_tandem_pair).
std::unique_ptr<TransformerModel> make_tandem_secondary(const TransformerModel& secondary,
                                                        const TransformerModel& primary, const TandemStart& start = {});

// A configuration of a Tandem secondary to be trained from random weights: `secondary` with its Tandem part, without an
// encoder. Errors: as above.
TransformerConfig tandem_config(TransformerConfig secondary, const TransformerConfig& primary, const TandemStart& start,
                                const TandemNames& names);

// Whether the directory's config.json says that it is a Tandem secondary. false where there is none.
bool is_tandem_directory(const std::filesystem::path& directory);

// The primary that a Tandem directory's config.json names; nothing where it names none, as in checkpoints of training.
std::optional<PrimaryRecord> recorded_primary(const std::filesystem::path& directory);

// Where a Tandem directory's primary lies: what its path leads to, or primary/ inside it where it names none, as in
// checkpoints. Errors: UserError for what is no Tandem directory, and where there is neither.
std::filesystem::path tandem_primary(const std::filesystem::path& directory);

// Everything that a Tandem directory's form can be wrong in, its primary included, whose hash is compared; what
// `verify` asks. Errors: UserError.
void check_tandem_directory(const std::filesystem::path& directory);

// Loads the secondary for use with the primary in `primary_directory`, which may be another directory than the recorded
// one but must be the same model. Empty: the primary is not checked. Errors (UserError): those of load_model; another
// primary than the recorded one (naming both), or none there.
std::unique_ptr<TransformerModel> load_tandem_secondary(const std::filesystem::path& directory,
                                                        const std::filesystem::path& primary_directory,
                                                        const LoadOptions& options = {});

struct TandemSaveOptions {
  SaveOptions files = {};  // of both models
  // Exactly one of the two is given: a primary in memory (unpacked), written into primary/ ...
  const TransformerModel* primary = nullptr;
  // ... or a model directory, referenced or, with copy_primary, copied into primary/.
  std::filesystem::path primary_directory = {};
  bool copy_primary = false;
  // Whether config.json names a primary in memory by its hash, for which it is read back; a checkpoint need not.
  bool record_primary = true;
};

// Writes a Tandem directory, atomically. Errors: as save_model.
void save_tandem(const std::filesystem::path& directory, const TransformerModel& secondary,
                 const TandemSaveOptions& options);

}  // namespace draftsmith::model
