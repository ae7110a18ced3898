// What `draftsmith export` writes is a drafter for Transformers: it generates the ids that it generates here, and as
// assistant_model it leaves its target's greedy outputs as they are. CTranslate2 generates the same ids, and GGUF files
// hold the weights as llama.cpp's own package rounds them.
#include <gtest/gtest.h>

#include "base/json.h"
#include "infer/generator.h"
#include "model/files/checkpoint.h"
#include "model/pruning/pruning.h"
#include "recipes/export/export_model.h"
#include "tests/parity/model_comparison.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;

std::vector<std::vector<int64_t>> greedy_outputs(TransformerModel& model,
                                                 const std::vector<std::vector<int64_t>>& sources) {
  infer::DecodeOptions options;
  options.method = "greedy";
  options.max_new_tokens = 14;
  infer::GenerationModels models;
  models.target = &model;
  infer::Generator generator(std::move(models), options);
  std::vector<std::vector<int64_t>> outputs;
  for (auto& result : generator.generate(sources)) outputs.push_back(std::move(result.ids));
  return outputs;
}

// An evaluation of a drafter, as results.json has it.
fs::path write_results(const TransformersReference& reference, const std::string& name, const fs::path& drafter) {
  const nlohmann::ordered_json setting = {
      {"name", "assisted"},          {"method", "assisted"},        {"params", {{"drafter", "small"}}},
      {"quality", {{"bleu", 27.5}}}, {"speed", {{"speedup", 1.5}}}, {"acceptance", {{"alpha", 0.625}}}};
  const nlohmann::ordered_json baseline = {
      {"name", "greedy"}, {"method", "greedy"}, {"quality", {{"bleu", 27.5}}}, {"speed", {{"speedup", 1}}}};
  const auto file = reference.root() / (name + ".results.json");
  write_json(
      file,
      {{"version", 1},
       {"suite", "s"},
       {"environment", {{"model", reference.directory(name).string()}, {"drafters", {{"small", drafter.string()}}}}},
       {"tasks", {{{"name", "a: test"}, {"metric", "bleu"}, {"baseline", baseline}, {"runs", {setting}}}}}});
  return file;
}

// A drafter cut out of a target, exported, and what it generates here.
void export_drafter(const TransformersReference& reference, const std::string& name) {
  const auto target = load(reference.directory(name), false);
  PruneOptions options;
  (target->config().encoder_decoder ? options.encoder_layers : options.decoder_layers) = "first:1";
  const auto drafter = prune(*target, options);
  const auto cut = reference.root() / "cut" / name;
  save_model(cut, *drafter);
  const auto out = reference.root() / "saved" / name;
  const auto done = recipes::export_model({.model = cut,
                                           .out = out,
                                           .target = reference.directory(name),
                                           .results = write_results(reference, name, cut),
                                           .license = "apache-2.0",
                                           .language = {"de", "no"},
                                           .base_model = "owner/base",
                                           .dataset = {"owner/texts"}},
                                          at::kCPU);
  ASSERT_TRUE(done.after.has_value());
  EXPECT_LT(done.after->agreement, 0.99) << name << ": a drafter that is its target tests nothing";
  const nlohmann::ordered_json ours = greedy_outputs(*load(out, true), reference.greedy(name).sources);
  write_json(reference.root() / (name + ".ours.json"), ours);
}

TEST(ExportParity, TransformersGeneratesTheSameWithIt) {
  if (!TransformersReference::available()) {
    GTEST_SKIP() << "no Python with Transformers: run ./test, or set DRAFTSMITH_PEERS_PYTHON";
  }
  const TransformersReference reference("parity_export.py");
  for (const char* name : {"t5_v1_1", "llama3", "gpt2"}) export_drafter(reference, name);
  EXPECT_EQ(reference.check_saved(), "");
}

// Exports a model of the reference for CTranslate2, with what it generates here, and as GGUF where there is a form.
void export_for_engines(const TransformersReference& reference, const std::string& name, bool gguf) {
  const auto out = reference.root() / "saved" / name;
  recipes::export_model({.model = reference.directory(name), .out = out}, at::kCPU);
  const nlohmann::ordered_json ours = greedy_outputs(*load(out, true), reference.greedy(name).sources);
  write_json(reference.root() / (name + ".ours.json"), ours);
  if (!gguf) return;
  make_directories(reference.root() / "gguf");
  for (const std::string dtype : {"stored", "fp16", "bf16", "q8_0"}) {
    const auto file = reference.root() / "gguf" / (name + "." + dtype + ".gguf");
    recipes::export_model({.model = out, .out = file, .format = "gguf", .dtype = dtype}, at::kCPU);
  }
}

TEST(ExportParity, OtherEnginesHaveTheSameModels) {
  if (!TransformersReference::available()) {
    GTEST_SKIP() << "no Python with Transformers: run ./test, or set DRAFTSMITH_PEERS_PYTHON";
  }
  const TransformersReference reference("parity_engines.py");
  for (const char* name : {"t5", "gpt_neox"}) export_for_engines(reference, name, false);
  for (const char* name : {"llama", "gpt2"}) export_for_engines(reference, name, true);
  EXPECT_EQ(reference.check_saved(), "");
}

}  // namespace
}  // namespace draftsmith::model
