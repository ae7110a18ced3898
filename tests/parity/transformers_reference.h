// Runs tools/parity_models.py and its siblings (Transformers, in a virtual environment of its own) and reads what they
// wrote.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/aten.h"
#include "base/files.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

// One batch that Transformers ran: see reference() in the tools.
struct Reference {
  TokenBatch source;  // undefined for decoder-only models
  TokenBatch target;
  at::Tensor labels;                        // int64 [B,T], -100 where there is nothing to predict
  at::Tensor logits;                        // [B,T,V]
  double loss = 0.0;                        // mean cross entropy
  std::map<std::string, at::Tensor> grads;  // of the loss, under Hugging Face names
};

using Lists = std::vector<std::vector<int64_t>>;

// Sources and their greedy outputs: new tokens only, EOS included.
struct GreedyReference {
  Lists sources, outputs;
};

class TransformersReference {
 public:
  // Returns whether there is a Python with Transformers: DRAFTSMITH_PEERS_PYTHON or .venv-peers, which ./test installs.
  static bool available();

  // Returns the reference of a script, made once in this process.
  static const TransformersReference& of(const std::string& script);

  // Makes all models and references of tools/`script` in a temporary directory (about ten seconds).
  explicit TransformersReference(std::string script);

  const std::filesystem::path& root() const { return root_.path(); }
  std::filesystem::path directory(const std::string& name) const { return root_ / name; }
  Reference batch(const std::string& name) const;
  GreedyReference greedy(const std::string& name) const;
  // Lets Transformers load and compare everything in root()/saved. Returns the problems it found; empty: none.
  std::string check_saved() const;
  // Runs another command of the script: COMMAND ROOT REST. Returns what it printed if it failed.
  std::string run(const std::string& command, const std::string& rest = "") const;

 private:
  TemporaryDirectory root_;
  std::string script_;
};

// Fixture of tests that are skipped without Transformers.
class NeedsTransformers : public testing::Test {
 protected:
  void SetUp() override {
    if (!TransformersReference::available()) {
      GTEST_SKIP() << "no Python with Transformers: run ./test, or set DRAFTSMITH_PEERS_PYTHON";
    }
  }
};

// Largest difference of two tensors, relative to the largest value of the second.
double relative_difference(const at::Tensor& found, const at::Tensor& wanted);

}  // namespace draftsmith::model
