// Exits of a model: an exit reads the hidden state of a decoder layer and predicts the next token from it, early. Exits
// are trained with the model (BiLD's early exit, Kim et al. 2023, section 4.4; CALM, Schuster et al. 2022), or as heads
// of a frozen model (early-prediction heads of PPD, Yang et al. 2024, section 5 and appendix A).
//
// Exits lie in a directory of their own (exits.json, exits.safetensors) that names its model by hash. Inside a model's
// directory it is draftsmith/exits, where other tools do not look.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/layers/linear.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

// The head that turns an exit's normed hidden state into logits.
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
  std::string trained_as = {};  // how they were trained: "early_exit_average", "calm_weighted", "weighted", "heads"
  std::string model = {};       // the model's name when they were trained
  std::string model_hash = {};  // the model's hash; empty: not bound, as in checkpoints of training
};

// Adds a problem at `where` for each layer outside 1..config.decoder_layers, given twice or out of order, each rank
// outside 1..width (or the vocabulary's rows, where they are fewer), a norm where the model ends without one, for no
// exit at all, and for models that do not predict the next token by themselves (Tandem secondaries, block prediction).
void check_exits(const ExitConfig& exits, const TransformerConfig& config, const std::string& where,
                 Problems& problems);

// The weights of a head over its input h: h weight^T, plus (h down^T) up^T if there is a low-rank addition, plus the
// model's bias, under the model's cap. With `up` alone the input is [h, g], and g up^T is added.
struct HeadWeights {
  at::Tensor weight;     // [rows,D]
  at::Tensor down = {};  // [r,D]
  at::Tensor up = {};    // [rows,r]; undefined: no addition
  at::Tensor bias = {};  // [rows], a constant; undefined: none
  double cap = 0;        // TransformerConfig::logit_cap

  // Returns the numbers of an input that `weight` multiplies [...,D], and with `up` those that `up` does [...,r].
  std::vector<at::Tensor> multiplied(const at::Tensor& input) const;
};

// Returns the weight of a model's own head: head.weight, or the shared embedding if it is tied. [rows,D]. The model
// must have parameters().
const at::Tensor& head_weight(const TransformerModel& model);
// Returns the same with the model's bias and cap.
HeadWeights own_head(const TransformerModel& model);

class Exits {
 public:
  // Makes exits to be trained. Norms start as copies of the model's final norm, full heads as copies of its head,
  // low-rank additions as zero (up is zero, down random by `seed`): at first every exit predicts what the shared head
  // would. `model` has parameters(). Errors: UserError (check_exits).
  Exits(ExitConfig config, const TransformerModel& model, uint64_t seed);
  // Takes parameters under their names. Errors: UserError at `where` for missing, unknown or misshapen ones.
  Exits(ExitConfig config, const TransformerConfig& model, std::map<std::string, at::Tensor> parameters,
        const std::string& where = "exits");

  const ExitConfig& config() const { return config_; }
  // "exit.N.norm.weight" and ".bias" [D], "exit.N.head.weight" [rows,D], "exit.N.head.down" [r,D],
  // "exit.N.head.up" [rows,r]; only those that the shapes have.
  const std::map<std::string, at::Tensor>& parameters() const { return parameters_; }
  // Returns the exit at a layer, or nullptr.
  const ExitShape* find(int64_t layer) const;

  // Returns whether the model's own final norm and head read a layer: it has no exit, or one without parameters.
  bool reads_as_model(int64_t layer) const;

  // Applies the exit's norm, or else the model's final norm, then the model's output scale: the input of the exit's
  // head. Works for layers without an exit, too. [...,D] -> [...,D]
  at::Tensor finish(const TransformerModel& model, int64_t layer, const at::Tensor& hidden) const;
  // Returns the head's weights; for kShared, and layers without an exit, those of the model's own head. The model must
  // have parameters().
  HeadWeights head(const TransformerModel& model, int64_t layer) const;
  // Returns the logits over all V ids of a layer's raw hidden state, [...,D] -> [...,V]. The model may be packed. For
  // kShared without a norm, and layers without an exit, they are those of model.exit_head().
  at::Tensor logits(const TransformerModel& model, int64_t layer, const at::Tensor& hidden) const;

  // Records the saved model of the exits: its directory as messages call it, and its model_hash().
  void bind(std::string model, std::string model_hash);
  // Moves and converts all parameters, and unpacks.
  void to(at::Device device, at::ScalarType dtype);
  // Packs the heads for decoding beside the parameters, which must not change afterwards; logits() that record
  // gradients go on reading the parameters. Undone by to().
  void pack();

 private:
  Linear linear(int64_t layer, const char* part) const;

  ExitConfig config_;
  TransformerConfig model_;
  std::map<std::string, at::Tensor> parameters_;
  std::map<std::string, Linear> packed_;  // by the parameters' names
};

// Like Exits::logits(), or model.exit_head() if `exits` is nullptr.
at::Tensor exit_logits(const TransformerModel& model, const Exits* exits, int64_t layer, const at::Tensor& hidden);

// Returns draftsmith/exits inside a model's directory.
std::filesystem::path exits_directory(const std::filesystem::path& model_directory);
// Returns whether a directory holds exits (exits.json).
bool holds_exits(const std::filesystem::path& directory);

// Writes a directory of exits atomically: exits.json, and exits.safetensors if there are parameters, in their type.
// Missing parents are created. Errors, as save_model's: UserError when something lies there, RunError.
void save_exits(const std::filesystem::path& directory, const Exits& exits);

// Loads exits for the model in `model_directory` that was loaded as `model`: on its device, of its type, and packed if
// the model is for decoding only. Errors: UserError for files that are missing or malformed, and for exits of another
// model (naming both hashes) or that do not fit it. `check_hash` is false for checkpoints of training, whose exits are
// compared by shape only.
std::unique_ptr<Exits> load_exits(const std::filesystem::path& directory, const std::filesystem::path& model_directory,
                                  const TransformerModel& model, bool check_hash = true);

// Reads exits.json alone. Errors: UserError.
ExitConfig load_exit_config(const std::filesystem::path& directory);

// Returns the description that `draftsmith inspect` prints, several lines: each exit's layer and form, the numbers it
// adds, how the exits were trained and for which model. Errors: UserError.
std::string describe_exits(const std::filesystem::path& directory);

// Checks a directory of exits: its form, that its numbers are finite and, if a model directory is given, that the exits
// belong to that model. Errors: UserError.
void check_exit_directory(const std::filesystem::path& directory, const std::filesystem::path& model_directory = {});

}  // namespace draftsmith::model
