// Exits inside a model's directory are no business of Transformers': it loads the model beside them, misses no tensor,
// finds none too many, and computes the logits that it and we compute without them; exported or not.
#include <gtest/gtest.h>

#include "model/files/checkpoint.h"
#include "model/files/model_hash.h"
#include "model/kinds/exits.h"
#include "recipes/export/export_model.h"
#include "tests/parity/model_comparison.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;

// One exit of each form that has tensors, none of which is the model's own.
void save_with_exits(const fs::path& directory, const TransformerModel& model) {
  save_model(directory, model);
  ExitConfig config{.trained_as = "heads"};
  config.exits.push_back({.layer = 1, .head = ExitHead::kFull, .own_norm = true});
  config.exits.push_back({.layer = 2, .head = ExitHead::kLowRank, .rank = 3});
  Exits exits(config, model, 5);
  for (const auto& [name, value] : exits.parameters()) value.add_(0.5);
  exits.bind("model", model_hash(directory));
  save_exits(exits_directory(directory), exits);
}

void expect_equal_logits(const TransformersReference& reference, const std::string& name) {
  const fs::path directory = reference.root() / "saved" / name;
  const auto model = load(directory, true);
  const Reference batch = reference.batch(name);
  EXPECT_LT(steps_difference(*model, batch), kLogitsTolerance) << name;
  const auto exits = load_exits(exits_directory(directory), directory, *model);
  const at::Tensor hidden = at::ones({1, 1, model->config().width});
  EXPECT_GT(relative_difference(exits->logits(*model, 1, hidden), model->exit_head(hidden)), 1e-3)
      << name << ": exits that predict what the model does test nothing";
}

// T5 with a tied head and mT5 without, Llama with RMS norms, GPT-2 with layer norms.
TEST(ExitsParity, TransformersLoadsTheModelWithoutThem) {
  if (!TransformersReference::available()) {
    GTEST_SKIP() << "no Python with Transformers: run ./test, or set DRAFTSMITH_PEERS_PYTHON";
  }
  const std::map<std::string, std::vector<std::string>> models = {{"parity_t5.py", {"t5_v1_0", "mt5"}},
                                                                  {"parity_decoder_only.py", {"llama3", "gpt2"}}};
  for (const auto& [script, names] : models) {
    const TransformersReference reference(script);
    const fs::path saved = reference.root() / "saved";
    for (const std::string& name : names) {
      save_with_exits(saved / name, *load(reference.directory(name), false));
      expect_equal_logits(reference, name);
    }
    EXPECT_EQ(reference.check_saved(), "");
    fs::rename(saved, reference.root() / "with_exits");
    for (const std::string& name : names) {
      recipes::export_model({.model = reference.root() / "with_exits" / name, .out = saved / name});
      expect_equal_logits(reference, name);
    }
    EXPECT_EQ(reference.check_saved(), "") << "exported";
  }
}

}  // namespace
}  // namespace draftsmith::model
