// What the training tests share: a tiny T5, a corpus of a learnable toy task, options that train it in a second, and
// the Python originals.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "data/corpus/corpus.h"
#include "model/transformer/transformer_model.h"
#include "train/trainer.h"

namespace draftsmith::train {

inline constexpr int64_t kTestVocabulary = 29;

model::TransformerConfig tiny_config();

// Writes a corpus whose targets are the sources reversed, of random lengths 1..8, EOS (1) at the end of both.
void write_reversal_corpus(const std::filesystem::path& file, int64_t examples, uint64_t seed);

// Small batches, dropout, two micro-batches a step: everything that exact resume has to get right.
TrainOptions tiny_options();

// One run in `directory` on DIRECTORY/../train.h5, which must exist, with a model of seed 5.
TrainResult train_tiny(const std::filesystem::path& directory, const TrainOptions& options);
// The same with a validation corpus too.
TrainResult train_tiny_validated(const std::filesystem::path& directory, const TrainOptions& options);

// Names of parameters or gradients that differ between two sets by more than `tolerance` (relative to the largest).
std::string differences(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b,
                        double tolerance);

// (f(x + h) - f(x - h)) / 2h for each number of x, fp64, h = 1e-5.
at::Tensor numeric_gradient(at::Tensor x, const std::function<double()>& f);

// Returns the Python with the peers, if there is one: DRAFTSMITH_PEERS_PYTHON or .venv-peers.
std::optional<std::string> peers_python();
// Runs tests/train/<script> with arguments in it; returns what it printed. Throws when it fails.
std::string run_python(const std::string& script, const std::vector<std::string>& arguments);

}  // namespace draftsmith::train
