// Block prediction (Nair et al. 2024, section 5.2, equation 3): a decoder-only model alone predicts the next γ tokens
// at once. Tokens attend to all earlier blocks of γ tokens and to all of their own block, both ways; the hidden state
// at token t predicts token t + γ, so that a block's states predict the whole next block. The first γ tokens of a text
// are predicted by nothing. A TransformerModel with config.block_attention = γ, stored as
// DraftsmithBlockPrediction<architecture> with "draftsmith_block_prediction": {"block": γ} in config.json.
//
// It is also the large part of a deep Tandem (model/kinds/deep_tandem.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "model/files/checkpoint.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

// Returns the kind of models of block prediction.
const ModelKind& block_prediction_kind();

// Returns `config` as that of a model of block prediction. Errors (UserError): an encoder-decoder, a Tandem secondary,
// γ below 1.
TransformerConfig block_prediction_config(TransformerConfig config, int64_t block);

// Loads a model of block prediction; save_model() writes them. Errors: as load_model; a model of another kind.
std::unique_ptr<TransformerModel> load_block_prediction(const std::filesystem::path& directory,
                                                        const LoadOptions& options = {});

// Returns values [B,T,...] moved by `distance` tokens: position t holds the value of position t + distance (before it,
// if negative), or `missing` if that lies in another segment or outside the row. With distance γ - 1 the usual labels
// (token t + 1 at t) become those of block prediction. Differentiable.
at::Tensor shifted(const at::Tensor& values, const TokenBatch& batch, int64_t distance, double missing);

}  // namespace draftsmith::model
