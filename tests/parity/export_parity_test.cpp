// What we write is read elsewhere as it should be. What `draftsmith export` writes is a drafter for Transformers: it
// generates the ids that it generates here, and as assistant_model it leaves its target's greedy outputs as they are.
// CTranslate2 and llama.cpp generate the same ids, and GGUF files hold the weights as llama.cpp's own package rounds
// them. Models with exits are models without them there, and models of kinds of our own are none.
#include <gtest/gtest.h>

#include "base/json.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/models/block_models.h"
#include "model/models/deep_tandem.h"
#include "model/models/exits.h"
#include "model/models/tandem.h"
#include "model/pruning/pruning.h"
#include "recipes/export/export_model.h"
#include "tests/parity/model_comparison.h"
#include "tests/support/models.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;

using ExportParity = NeedsTransformers;
using ExitsParity = NeedsTransformers;
using KindsParity = NeedsTransformers;

// Writes what the exported model `name` of a folder generates here.
void write_outputs(const TransformersReference& reference, const std::string& folder, const std::string& name) {
  const auto model = load(reference.root() / folder / name, true);
  const nlohmann::ordered_json ours = greedy_outputs(*model, reference.greedy(name).sources, 14, 1);
  write_json(reference.root() / (name + ".ours.json"), ours);
}

// A drafter cut out of a target, exported, and what it generates here.
void export_drafter(const TransformersReference& reference, const std::string& name) {
  const auto target = load(reference.directory(name), false);
  PruneOptions options;
  (target->config().encoder_decoder ? options.encoder_layers : options.decoder_layers) = "first:1";
  const auto cut = reference.root() / "cut" / name;
  save_model(cut, *prune(*target, options));
  const auto out = reference.root() / "drafters" / name;
  recipes::export_model({.model = cut, .out = out, .target = reference.directory(name)});
  write_outputs(reference, "drafters", name);
}

TEST_F(ExportParity, TransformersGeneratesTheSameWithIt) {
  const TransformersReference& reference = TransformersReference::of("parity_models.py");
  for (const char* name : {"t5_v1_1", "llama3", "gpt2"}) export_drafter(reference, name);
  EXPECT_EQ(reference.run("drafters"), "");
}

// Exports a model of the reference for CTranslate2, with what it generates here, and as GGUF where there is a form.
void export_for_engines(const TransformersReference& reference, const std::string& name, bool gguf) {
  const auto out = reference.root() / "saved" / name;
  recipes::export_model({.model = reference.directory(name), .out = out});
  write_outputs(reference, "saved", name);
  if (!gguf) return;
  make_directories(reference.root() / "gguf");
  for (const std::string dtype : {"stored", "fp16", "bf16", "q8_0"}) {
    const auto file = reference.root() / "gguf" / (name + "." + dtype + ".gguf");
    recipes::export_model({.model = out, .out = file, .format = "gguf", .dtype = dtype});
  }
}

TEST_F(ExportParity, OtherEnginesHaveTheSameModels) {
  const TransformersReference reference("parity_engines.py");
  for (const char* name : {"t5", "gpt_neox"}) export_for_engines(reference, name, false);
  for (const char* name : {"llama", "mistral", "granite", "smollm3", "qwen2", "qwen3", "olmo2", "phi", "gpt2"}) {
    export_for_engines(reference, name, true);
  }
  EXPECT_EQ(reference.check_saved(), "");
}

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
TEST_F(ExitsParity, TransformersLoadsTheModelWithoutThem) {
  const TransformersReference reference("parity_models.py");
  const fs::path saved = reference.root() / "saved";
  for (const std::string name : {"t5_v1_0", "mt5", "llama3", "gpt2"}) {
    save_with_exits(saved / name, *load(reference.directory(name), false));
    expect_equal_logits(reference, name);
  }
  EXPECT_EQ(reference.check_saved(), "");
}

// Transformers says that it knows no such model, instead of filling in random weights.
TEST_F(KindsParity, TransformersTakesNoneForAModelItKnows) {
  const TransformersReference& reference = TransformersReference::of("parity_models.py");
  const auto saved = [&](const std::string& name) { return reference.root() / "kinds" / name; };
  for (const TransformerConfig& config : {tiny_mt5(), tiny_llama(3), tiny_gpt2()}) {
    const auto primary = varied_model(config, 1, at::kFloat);
    const auto secondary = make_tandem_secondary(*primary, *primary);
    save_tandem(saved("tandem_" + config.family), *secondary, {.primary = primary.get()});
  }
  save_model(saved("blocks"), TransformerModel(block_prediction_config(tiny_llama(2), 4), 1));
  save_deep_tandem(saved("deep"), DeepTandemModel({tiny_llama(3), tiny_llama(2), 4}, 1));
  EXPECT_EQ(reference.run("kinds"), "");
}

}  // namespace
}  // namespace draftsmith::model
