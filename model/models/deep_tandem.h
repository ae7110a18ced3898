// Deep Tandem (Nair et al. 2024, section 5, equations 3 and 4): one decoder-only model of two parts. The large part
// runs in blocks of γ, γ tokens behind what is predicted, with the attention of block prediction
// (model/models/block_models.h): all earlier blocks, and its own both ways. Its output is a sketch of the next
// block, added to the embeddings of the small, autoregressive part, which alone predicts:
//   y_i^(0) = Emb_S(x_{i-1}) + FF_Tandem(x_i^(L_L)),   x_i^(0) = Emb_L(x_{i-γ})
// where i is the token that is predicted; x^(L_L) is taken behind the large part's final norm. For it the
// large part reads tokens up to ⌊i/γ⌋γ - 1 < i, the whole block of token i-γ. Tokens 1..γ-1 of a text have no sketch:
// the positions that predict them, 0..γ-2, read their embeddings alone.
// A directory holds large/ and small/, model directories, the projection in model.safetensors (projection.weight) and a
// config.json of the architecture DraftsmithDeepTandem.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

struct DeepTandemParts {
  TransformerConfig large;  // ordinary configurations of decoder-only models; the large one's head is not used
  TransformerConfig small;
  int64_t block = 2;  // γ
};

class DeepTandemModel final : public LanguageModel {
 public:
  // Makes random weights by the families' own initialisation; the projection is zero, so that at first the small part
  // works alone. Errors (UserError): encoder-decoders, two vocabularies or ends of text, γ below 1.
  DeepTandemModel(const DeepTandemParts& parts, uint64_t seed);
  // Takes a `large` model of block prediction and an ordinary `small` one; projection [D_S,D_L]. For training both are
  // loaded unpacked. Errors: as the other constructor.
  DeepTandemModel(std::unique_ptr<TransformerModel> large, std::unique_ptr<TransformerModel> small,
                  at::Tensor projection);

  int64_t block() const { return large_->config().block_attention; }
  const TransformerModel& large() const { return *large_; }
  const TransformerModel& small() const { return *small_; }
  // FF_Tandem [D_S,D_L].
  const at::Tensor& projection() const { return projection_; }
  // Returns the small part's info, which stands for the whole model.
  const ModelInfo& info() const override { return small_->info(); }

  // Returns the parameters of both parts, "large." and "small." before their names, and "projection.weight".
  std::map<std::string, at::Tensor> parameters() const;
  void requires_grad(bool on);
  void to(at::Device device, at::ScalarType dtype);

  // Runs whole sequences. Returns hidden states [B,T,D_S] for head(): the one at token t predicts token t + 1.
  at::Tensor forward(const TokenBatch& tokens, const DropoutContext& dropout = {});
  // [...,D_S] -> [...,V]
  at::Tensor head(const at::Tensor& hidden) const { return small_->head(hidden); }

  // --- decoding: the large part reads a block once the text has all of it, the small one every token at once ---
  std::unique_ptr<DecodeState> begin(int64_t rows, int64_t capacity) override;
  // Hidden states are those of the small part.
  StepOutput step(const StepInput& input, DecodeState& state) override;
  void give_back(std::unique_ptr<DecodeState> state) override;
  void free_states() override;

 private:
  class State;

  std::unique_ptr<TransformerModel> large_;
  std::unique_ptr<TransformerModel> small_;
  at::Tensor projection_;
};

// Returns the kind of deep Tandems.
const ModelKind& deep_tandem_kind();

// Loads both parts. Errors: UserError that names what is malformed, as load_model().
std::unique_ptr<DeepTandemModel> load_deep_tandem(const std::filesystem::path& directory,
                                                  const LoadOptions& options = {});

// Writes a directory, atomically. Errors: as save_model.
void save_deep_tandem(const std::filesystem::path& directory, const DeepTandemModel& model,
                      const SaveOptions& options = {});

// The parts of a deep Tandem directory, opened and checked. Errors: UserError.
struct DeepTandemDirectories {
  ModelDirectory large;
  ModelDirectory small;
};
DeepTandemDirectories open_deep_tandem(const std::filesystem::path& directory);

}  // namespace draftsmith::model
