// Exits of a model: what reads the hidden state of a decoder layer and predicts the next token from it, early. Trained
// with the model (BiLD's early exit, Kim et al. 2023, section 4.4; CALM, Schuster et al. 2022), or as heads of a frozen
// one (early-prediction heads of PPD, Yang et al. 2024, section 5 and appendix A).
//
// Exits lie in a directory of their own (exits.json, exits.safetensors) that names its model by hash; inside a model's
// directory that is draftsmith/exits, where other tools do not look.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/layers/linear.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

// What makes logits of an exit's normed hidden state.
enum class ExitHead {
  kShared,   // the model's own head
  kFull,     // a head of its own, [rows,D]
  kLowRank,  // the model's own head plus up [rows,r] times down [r,D]
};

// Layers are counted as hidden states are: exit n reads the output of layer n, so layers 0..n-1 run before it.
struct ExitShape {
  int64_t layer = 1;  // 1..N
  ExitHead head = ExitHead::kShared;
  int64_t rank = 0;       // r of kLowRank, at least 1
  bool own_norm = false;  // a final norm of its own instead of the model's
};

struct ExitConfig {
  std::vector<ExitShape> exits = {};  // rising layers, each once
  std::string trained_as = {};        // what trained them: "early_exit_average", "calm_weighted", "weighted", "heads"
  std::string model = {};             // their model as it was named when they were trained
  std::string model_hash = {};        // model_hash() of it; empty: not bound, as in checkpoints of training
};

// Adds a problem at `where` for each layer outside 1..config.decoder_layers, given twice or out of order, each rank
// outside 1..width (or the vocabulary's rows, where they are fewer), for no exit at all, and for models that do not
// predict the next token by themselves (Tandem secondaries, block prediction).
void check_exits(const ExitConfig& exits, const TransformerConfig& config, const std::string& where,
                 Problems& problems);

// The same for each tensor, by its name, that exits of this config do not have or have in another shape.
void check_exit_shapes(const ExitConfig& exits, const TransformerConfig& config,
                       const std::map<std::string, std::vector<int64_t>>& shapes, const std::string& where,
                       Problems& problems);

// What makes logits of what a head reads, h: h weight^T, plus (h down^T) up^T where there is an addition of low rank.
struct HeadWeights {
  at::Tensor weight;     // [rows,D]
  at::Tensor down = {};  // [r,D]; undefined: no addition
  at::Tensor up = {};    // [rows,r]
};

// The weight of a model's own head: head.weight, or the shared embedding where it is tied. It has parameters().
// [rows,D]
const at::Tensor& head_weight(const TransformerModel& model);

class Exits {
 public:
  // Exits to be trained: norms begin as copies of the model's final norm, full heads as copies of its head, low-rank
  // additions as zero (up is zero, down random by `seed`): at first every exit predicts what the shared head would.
  // `model` has parameters(). Errors: UserError (check_exits).
  Exits(ExitConfig config, const TransformerModel& model, uint64_t seed);
  // From parameters under their names. Errors: UserError for those that are missing, unknown or misshapen.
  Exits(ExitConfig config, const TransformerConfig& model, std::map<std::string, at::Tensor> parameters);

  const ExitConfig& config() const { return config_; }
  // Of the model that they were made for.
  const TransformerConfig& model_config() const { return model_; }
  // "exit.N.norm.weight" and ".bias" [D], "exit.N.head.weight" [rows,D], "exit.N.head.down" [r,D],
  // "exit.N.head.up" [rows,r]; only those that the shapes have.
  const std::map<std::string, at::Tensor>& parameters() const { return parameters_; }
  // nullptr: no exit there.
  const ExitShape* find(int64_t layer) const;

  // What the exit's head reads: the exit's norm, or the model's final one, then the model's output scale. Also of
  // layers without an exit. [...,D] -> [...,D]
  at::Tensor finish(const TransformerModel& model, int64_t layer, const at::Tensor& hidden) const;
  // What the exit's head multiplies with; for kShared, and layers without an exit, the model's own head. The model has
  // parameters().
  HeadWeights head(const TransformerModel& model, int64_t layer) const;
  // Logits of a layer's raw hidden state over all V ids, [...,D] -> [...,V]; of any model, a packed one too. For
  // kShared without a norm, and layers without an exit, model.exit_head().
  at::Tensor logits(const TransformerModel& model, int64_t layer, const at::Tensor& hidden) const;

  // Names their model, which has been saved: its directory as messages call it, and its model_hash().
  void bind(std::string model, std::string model_hash);
  // Moves and converts all parameters, and unpacks.
  void to(at::Device device, at::ScalarType dtype);
  // Packs the heads for decoding beside the parameters, which must not change afterwards; logits() that record
  // gradients go on reading the parameters. Undone by unpack().
  void pack();
  void unpack() { packed_.clear(); }

 private:
  Linear linear(int64_t layer, const char* part) const;

  ExitConfig config_;
  TransformerConfig model_;
  std::map<std::string, at::Tensor> parameters_;
  std::map<std::string, Linear> packed_;  // by the parameters' names
};

// The same where there may be no exits: `exits` may be nullptr.
at::Tensor exit_logits(const TransformerModel& model, const Exits* exits, int64_t layer, const at::Tensor& hidden);

// Numbers that an exit adds to its model, of these shapes.
int64_t count_numbers(const ExitShape& exit, const TransformerConfig& config);

// draftsmith/exits inside a model's directory.
std::filesystem::path exits_directory(const std::filesystem::path& model_directory);
// Whether a directory holds exits (exits.json).
bool holds_exits(const std::filesystem::path& directory);

// Writes a directory of exits, atomically: exits.json, and exits.safetensors where there are parameters, in their type.
// Missing parents are created. Errors: as save_model's: UserError when something lies there, RunError.
void save_exits(const std::filesystem::path& directory, const Exits& exits);

// Exits for the model in `model_directory` that was loaded as `model`: on its device, of its type; packed where it is
// for decoding only. Errors: UserError for files that are missing or malformed, exits of another model (naming both
// hashes), or that do not fit it. With `check_hash` false as in checkpoints of training: shapes only.
std::unique_ptr<Exits> load_exits(const std::filesystem::path& directory, const std::filesystem::path& model_directory,
                                  const TransformerModel& model, bool check_hash = true);

// exits.json alone, for those who describe it. Errors: UserError.
ExitConfig load_exit_config(const std::filesystem::path& directory);

// What `draftsmith inspect` says of a directory of exits: each exit's layer and form, the numbers it adds and those of
// the other form, what trained them and for which model. Several lines. Errors: UserError.
std::string describe_exits(const std::filesystem::path& directory);

// What `draftsmith verify` asks of a directory of exits: its form, that its numbers are finite and, where a model
// directory is given, that it is theirs. Errors: UserError.
void check_exit_directory(const std::filesystem::path& directory, const std::filesystem::path& model_directory = {});

}  // namespace draftsmith::model
