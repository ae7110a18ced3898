// What we write is read elsewhere as it should be. What `draftsmith export` writes is a drafter for Transformers: it
// generates the ids that it generates here, and as assistant_model it leaves its target's greedy outputs as they are.
// CTranslate2 and llama.cpp generate the same ids, and GGUF files hold the weights as llama.cpp's own package rounds
// them. Models with exits are models without them there, and models of kinds of our own are none. What `draftsmith
// import` makes of such files is the model that was exported.
#include <cstring>

#include <gmock/gmock.h>

#include "base/files.h"
#include "base/json.h"
#include "data/chat/chat_template.h"
#include "data/tokenizers/tokenizer.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/models/block_models.h"
#include "model/models/deep_tandem.h"
#include "model/models/exits.h"
#include "model/models/tandem.h"
#include "model/pruning/pruning.h"
#include "recipes/export/export_model.h"
#include "recipes/import/import_gguf.h"
#include "tests/parity/model_comparison.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/paths.h"
#include "tests/support/scoped_variable.h"

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
  save_model(cut, *prune(*target, options), {.tokenizer = reference.root() / "spiece.model"});
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

// What is imported of an exported file: parameters to the bit, in the file's type, tokenizer and chat template.
void expect_import(const TransformersReference& reference, const std::string& name, const std::string& dtype) {
  const auto saved = reference.root() / "saved" / name;
  const auto out = reference.root() / "imported" / (name + "." + dtype);
  recipes::import_gguf(reference.root() / "gguf" / (name + "." + dtype + ".gguf"), out);
  const auto type = dtype == "fp16" ? at::kHalf : dtype == "bf16" ? at::kBFloat16 : at::kFloat;
  const auto wanted = load(saved, false);
  const auto found = load(out, false);
  ASSERT_EQ(found->parameters().size(), wanted->parameters().size()) << out;
  for (const auto& [parameter, values] : wanted->parameters()) {
    const bool rounded = values.dim() > 1 && parameter != "decoder.positions.weight";
    EXPECT_TRUE(at::equal(rounded ? values.to(type).to(at::kFloat) : values, found->parameters().at(parameter)))
        << out << " " << parameter;
  }
  if (dtype != "stored") return;
  const Lists sources = reference.greedy(name).sources;
  EXPECT_EQ(greedy_outputs(*found, sources, 14, 30), greedy_outputs(*wanted, sources, 14, 30)) << out;
  const auto ours = data::load_tokenizer(saved);
  const auto imported = data::load_tokenizer(out);
  for (const char* text : {"bado kumi, 3.14", "fun goro", "\u00e9 dun"}) {
    EXPECT_EQ(imported->encode(text), ours->encode(text)) << out << ": " << text;
  }
  EXPECT_EQ(data::find_chat_template(out).value().text, data::find_chat_template(saved).value().text);
}

// Imports a file in blocks and exports it in fp32: for llama.cpp the weights that the blocks stand for.
void import_blocks(const TransformersReference& reference, const std::string& name) {
  const auto out = reference.root() / "saved" / name;
  recipes::import_gguf(reference.root() / (name + ".gguf"), out);
  write_outputs(reference, "saved", name);
  recipes::export_model(
      {.model = out, .out = reference.root() / "gguf" / (name + ".stored.gguf"), .format = "gguf", .dtype = "stored"});
}

// Expects one error about a changed file, and nothing written.
void expect_refused(const TransformersReference& reference, const std::string& bytes, const std::string& message) {
  const fs::path file = write_text(reference.root() / "bad.gguf", bytes);
  const fs::path out = reference.root() / "refused" / "out";
  EXPECT_THAT(error_of([&] { recipes::import_gguf(file, out); }),
              testing::AllOf(testing::HasSubstr(file.string()), testing::HasSubstr(message)));
  EXPECT_TRUE(fs::is_empty(out.parent_path()));
}

// Returns the bytes with another text of the same length in the place of one.
std::string changed(std::string bytes, const std::string& text, const std::string& by) {
  return bytes.replace(bytes.find(text), text.size(), by);
}

// Returns the bytes with another integer under a key of a Llama.
std::string with_size(std::string bytes, const std::string& key, uint32_t value) {
  std::memcpy(bytes.data() + bytes.find("llama." + key) + key.size() + 10, &value, sizeof(value));
  return bytes;
}

void expect_bad_files_refused(const TransformersReference& reference) {
  const std::string good = read_file(reference.root() / "gguf" / "llama.stored.gguf");
  expect_refused(reference, good.substr(0, 10), "cut short");
  expect_refused(reference, good.substr(0, good.size() / 2), "cut short");
  expect_refused(reference, "no model", "no GGUF file");
  expect_refused(reference,
                 changed(good, std::string("\5\0\0\0\0\0\0\0llama", 13), std::string("\5\0\0\0\0\0\0\0mamba", 13)),
                 "of this family are not read");
  expect_refused(reference, changed(good, "ggml.tokens", "ggml.nokens"), "tokenizer.ggml.tokens is missing");
  expect_refused(reference, changed(good, "ggml.scores", "ggml.nothin"), "tokenizer.ggml.scores is missing");
  expect_refused(reference, changed(good, "blk.0.attn_q", "blk.0.attn_x"), "blk.0.attn_x.weight is not read");
  expect_refused(reference, with_size(good, "feed_forward_length", 63), "63");
  expect_refused(reference, with_size(good, "vocab_size", 300), "disagrees with token_embd.weight");
  expect_refused(reference, with_size(good, "block_count", 2'000'000'000), "block_count and the tensors disagree");
  const fs::path python = write_text(reference.root() / "python", "#!/bin/sh\nexec python3 -I -S \"$@\"\n");
  fs::permissions(python, fs::perms::owner_all);
  const ScopedVariable chosen("DRAFTSMITH_PYTHON", python.string());
  expect_refused(reference, good, "pip install gguf");
}

TEST_F(ExportParity, OtherEnginesHaveTheSameModels) {
  const TransformersReference reference("parity_engines.py");
  const ScopedVariable python("DRAFTSMITH_PYTHON", draftsmith::test::peers_python().string());
  for (const char* name : {"t5", "gpt_neox"}) export_for_engines(reference, name, false);
  for (const char* name : {"llama", "mistral", "granite", "smollm3", "qwen2", "qwen3", "olmo2", "phi", "gpt2"}) {
    export_for_engines(reference, name, true);
    expect_import(reference, name, "stored");
  }
  for (const char* name : {"llama", "gpt2"}) {
    for (const char* dtype : {"fp16", "bf16"}) expect_import(reference, name, dtype);
  }
  EXPECT_EQ(reference.run("quantise"), "");
  for (const char* name : {"llama_Q4_0", "llama_Q8_0", "qwen3_Q5_1"}) import_blocks(reference, name);
  expect_bad_files_refused(reference);
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
