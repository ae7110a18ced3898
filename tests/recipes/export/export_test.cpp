#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "evaluate/results/results.h"
#include "model/files/checkpoint.h"
#include "recipes/done_file.h"
#include "recipes/export/export_formats.h"
#include "recipes/export/export_model.h"
#include "recipes/export/export_record.h"
#include "recipes/export/model_facts.h"
#include "recipes/inspection.h"
#include "tests/model/files/checkpoint_files.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

model::TransformerConfig t5_config() {
  model::TransformerConfig config = model::tiny_t5();
  config.output_scale = 1 / std::sqrt(static_cast<double>(config.width));  // the one that files can hold
  return config;
}

class Exporting : public testing::Test {
 protected:
  Exporting() {
    save("llama", model::tiny_llama());
    save("target", model::tiny_llama(3));
    save("t5", t5_config());
  }

  void save(const std::string& name, const model::TransformerConfig& config,
            const model::SaveOptions& options = {}) const {
    model::save_model(folder_ / name, model::TransformerModel(config, 5), options);
  }

  // Exports NAME as OUT.
  ExportSummary run(const std::string& name, const std::string& out, ExportOptions options = {}) const {
    options.model = folder_ / name;
    options.out = folder_ / out;
    return export_model(options, at::kCPU);
  }

  // The error of an export that is refused; nothing may be left of it.
  std::string refused(const std::string& name, const ExportOptions& options) const {
    const std::string error = error_of([&] { run(name, "refused", options); });
    EXPECT_FALSE(fs::exists(folder_ / "refused"));
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("tmp"))) << "left behind";
    }
    return error;
  }

  std::string inspect_error(const std::string& name) const {
    return error_of([&] { inspect(folder_ / name); });
  }

  const TemporaryDirectory folder_;
};

TEST_F(Exporting, WhatIsWrittenIsTheModel) {
  for (const std::string name : {"llama", "t5"}) {
    const ExportSummary done = run(name, name + "_out");
    EXPECT_EQ(done.dtype, "F32");
    EXPECT_EQ(done.logits_difference, 0);
    const auto before = model::load_model(folder_ / name, {.pack = false});
    const auto after = model::load_model(folder_ / (name + "_out"), {.pack = false});
    EXPECT_EQ(done.tensors, before->parameters().size());
    for (const auto& [parameter, tensor] : before->parameters()) {
      EXPECT_TRUE(at::equal(tensor, after->parameters().at(parameter))) << parameter;
    }
    EXPECT_THAT(verify(folder_ / (name + "_out")), IsEmpty());
    EXPECT_TRUE(is_recorded(folder_ / (name + "_out")));
    EXPECT_THAT(inspect(folder_ / (name + "_out")), HasSubstr("exported       as hf"));
  }
  EXPECT_FALSE(is_recorded(folder_ / "llama"));
}

TEST_F(Exporting, ANarrowerTypeIsRoundedAndStillProven) {
  ExportOptions options;
  options.dtype = "bf16";
  EXPECT_EQ(run("llama", "narrow", options).dtype, "BF16");
  EXPECT_THAT(read_file(folder_ / "narrow/config.json"), HasSubstr("bfloat16"));
  EXPECT_THAT(verify(folder_ / "narrow"), IsEmpty());
  EXPECT_EQ(run("narrow", "again").dtype, "BF16") << "stored as it was";
  options.dtype = "fp16";
  run("t5", "half", options);
  EXPECT_EQ(run("half", "half_again").dtype, "F16") << "although some of its weights stay fp32";
}

// Beside fp16 alone is fp32 an exception: beside bf16 it is the widest type of the model.
TEST_F(Exporting, TheStoredTypeLosesNothing) {
  ExportOptions options;
  options.dtype = "bf16";
  run("t5", "mixed", options);
  const fs::path file = folder_ / "mixed/model.safetensors";
  std::vector<model::TensorToStore> tensors;
  {
    const model::SafetensorsFile opened(file);
    for (const auto& [name, entry] : opened.tensors()) {
      const bool down = name.ends_with("DenseReluDense.wo.weight");
      const at::Tensor value = opened.read(name, at::kFloat);
      tensors.push_back({name, down ? value + 1e-4 : value, down ? at::kFloat : at::kBFloat16});
    }
  }
  model::write_safetensors(file, tensors);
  fs::remove_all(folder_ / "mixed/draftsmith");
  EXPECT_EQ(run("mixed", "mixed_out").dtype, "F32");
}

TEST_F(Exporting, ATypeThatCannotHoldTheModelIsTheUsersToCorrect) {
  const auto save_scaled = [&](const std::string& name, double factor) {
    const model::TransformerModel model(model::tiny_llama(), 5);
    model.parameters().at("embedding.weight").mul_(factor);
    model::save_model(folder_ / name, model);
  };
  ExportOptions half;
  half.dtype = "fp16";
  save_scaled("large", 1e9);
  EXPECT_THAT(refused("large", half), AllOf(HasSubstr("cannot be held in fp16"), HasSubstr("embedding.weight overflow"),
                                            HasSubstr("choose --dtype stored or bf16")));
  save_scaled("small", 1e-10);  // 0 in fp16: written as it should be, and another model
  EXPECT_THAT(refused("small", half), AllOf(HasSubstr("cannot be held in fp16"), HasSubstr("other logits")));
  half.dtype = "bf16";
  EXPECT_EQ(run("large", "large_out", half).dtype, "BF16");
}

TEST_F(Exporting, AModelWithoutFiniteLogitsIsRefused) {
  const model::TransformerModel model(model::tiny_llama(), 5);
  model.parameters().at("decoder.final_norm.weight").fill_(3e38);
  model.parameters().at("embedding.weight").mul_(100);
  model::save_model(folder_ / "diverged", model);
  EXPECT_THAT(refused("diverged", {}), HasSubstr("logits that are not finite"));
}

TEST_F(Exporting, ShardsAreHeldToTheRecordToo) {
  model::TransformerConfig config = model::tiny_llama();
  config.width = 240;
  config.ff_width = 400;
  save("wide", config);
  ExportOptions options;
  options.shard_megabytes = 1;
  run("wide", "shards", options);
  EXPECT_TRUE(fs::exists(folder_ / "shards/model.safetensors.index.json"));
  EXPECT_THAT(verify(folder_ / "shards"), IsEmpty());
}

TEST_F(Exporting, SettingsOfGenerationAreCarriedOver) {
  write_file_atomic(folder_ / "llama/generation_config.json",
                    R"({"eos_token_id": [1, 3], "repetition_penalty": 1.5, "num_assistant_tokens": 7})");
  run("llama", "out");
  const auto settings = load_json(folder_ / "out/generation_config.json");
  EXPECT_EQ(settings.at("num_assistant_tokens"), 7);
  EXPECT_EQ(settings.at("eos_token_id").size(), 2);
}

TEST_F(Exporting, VerifyAndInspectNameWhatChanged) {
  run("llama", "out");
  const std::string config = read_file(folder_ / "out/config.json");
  const std::string weights = read_file(folder_ / "out/model.safetensors");
  const auto after_change = [&](const std::string& file, const std::string& content) {
    const std::string original = read_file(folder_ / "out" / file);
    write_file_atomic(folder_ / "out" / file, content);
    const std::string problems = text_of(verify(folder_ / "out"));
    EXPECT_NE(inspect_error("out"), "no error") << file;
    write_file_atomic(folder_ / "out" / file, original);
    return problems;
  };
  EXPECT_THAT(after_change("config.json", config + " "), AllOf(HasSubstr("config.json"), HasSubstr("was changed")));
  std::string damaged = weights;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  EXPECT_THAT(after_change("model.safetensors", damaged),
              AllOf(HasSubstr("tensor '"), HasSubstr("differs from the export")));
  EXPECT_THAT(after_change("model.safetensors", weights.substr(0, weights.size() / 2)), Not(IsEmpty()));
  fs::resize_file(folder_ / "out/model.safetensors", 1000);
  EXPECT_THAT(after_change("config.json", config + " "),
              AllOf(HasSubstr("model.safetensors"), HasSubstr("config.json")))
      << "weights that cannot be opened hide no other file";
  write_file_atomic(folder_ / "out/model.safetensors", weights);
  EXPECT_THAT(after_change("draftsmith/export.json", "{\"version\": 1"), HasSubstr("export.json"));
  EXPECT_THAT(after_change("draftsmith/export.json", "{\"version\": 1}"), HasSubstr("damaged record"));
  EXPECT_THAT(after_change("draftsmith/export.json", "{\"version\": 9}"), HasSubstr("another version"));
  EXPECT_THAT(after_change("draftsmith/probes.safetensors", "x"), HasSubstr("probes.safetensors"));
  fs::remove(folder_ / "out/generation_config.json");
  EXPECT_THAT(text_of(verify(folder_ / "out")), HasSubstr("file is missing"));
}

TEST_F(Exporting, TensorsThatAreMissingOrAddedAreNamed) {
  run("llama", "out");
  const fs::path file = folder_ / "out/model.safetensors";
  std::vector<model::TensorToStore> tensors;
  {
    const model::SafetensorsFile opened(file);
    for (const auto& [name, entry] : opened.tensors())
      tensors.push_back({name, opened.read(name, at::kFloat), at::kFloat});
  }
  const std::string first = tensors.front().name;
  tensors.front().name = "a.new.one";
  model::write_safetensors(file, tensors);
  EXPECT_THAT(text_of(verify(folder_ / "out")), AllOf(HasSubstr("'" + first + "'"), HasSubstr("is missing"),
                                                      HasSubstr("'a.new.one'"), HasSubstr("was added")));
}

TEST_F(Exporting, TheCardIsTheUsersToEdit) {
  run("llama", "out");
  write_file_atomic(folder_ / "out/README.md", "mine");
  write_file_atomic(folder_ / "out/LICENSE", "mine");
  EXPECT_THAT(verify(folder_ / "out"), IsEmpty());
}

// Hashes that agree do not make a model compute the same: the probes ask it.
TEST_F(Exporting, LogitsOfTheProbesAreComparedAsWell) {
  run("llama", "out");
  run("t5", "t5_out");
  ExportRecord record = read_export_record(folder_ / "out");
  const auto scaled = [&](double factor) {
    const at::Tensor logits = read_probe_logits(probe_logits_file(folder_ / "out"), {4, 8, 31}) * factor;
    write_probe_logits(probe_logits_file(folder_ / "out"), logits);
    write_export_record(folder_ / "out", record);
    return text_of(verify(folder_ / "out"));
  };
  EXPECT_EQ(scaled(1 + 1e-5), "");
  EXPECT_THAT(scaled(1.01), HasSubstr("gives other logits"));
  record.probes["targets"][0][0] = 31;
  EXPECT_THAT(scaled(1), HasSubstr("this model cannot read the probes"));
  record.probes = read_export_record(folder_ / "t5_out").probes;
  EXPECT_THAT(scaled(1), HasSubstr("this model cannot read the probes"));
}

TEST_F(Exporting, WhatIsThereIsNotOverwritten) {
  make_directories(folder_ / "taken");
  write_file_atomic(folder_ / "taken/mine.txt", "mine");
  EXPECT_THAT(error_of([&] { run("llama", "taken"); }), HasSubstr("is not overwritten"));
  EXPECT_EQ(read_file(folder_ / "taken/mine.txt"), "mine");
  make_directories(folder_ / "empty");
  run("llama", "empty/");
  run("llama", "new/deep/place");
  EXPECT_THAT(verify(folder_ / "new/deep/place"), IsEmpty());
}

TEST_F(Exporting, ModelsThatAFormatCannotHoldAreRefusedWithTheReason) {
  ExportOptions vllm;
  vllm.format = "vllm";
  EXPECT_THAT(refused("t5", vllm), HasSubstr("vLLM runs no encoder-decoder models"));
  model::TransformerConfig other = model::tiny_llama();
  other.vocabulary = 40;
  save("padded", other);
  vllm.target = folder_ / "padded";
  EXPECT_THAT(refused("llama", vllm), HasSubstr("as many ids as its target"));
  run("llama", "vllm_out", {.format = "vllm"});
  EXPECT_THAT(read_file(folder_ / "vllm_out/README.md"), HasSubstr("\"method\": \"draft_model\""));

  model::TransformerConfig pruned = model::tiny_llama();
  pruned.draft_vocabulary = {.ids = {0, 1, 2, 5, 9, 30}, .stand_in = 2};
  save("pruned", pruned);
  for (const char* format : {"hf", "vllm"}) {
    EXPECT_THAT(refused("pruned", {.format = format}), HasSubstr("pruned vocabulary")) << format;
  }

  make_directories(folder_ / "tandem");
  write_file_atomic(folder_ / "tandem/config.json", R"({"architectures": ["DraftsmithTandemLlamaForCausalLM"]})");
  make_directories(folder_ / "shared");
  write_file_atomic(folder_ / "shared/config.json",
                    R"({"architectures": ["DraftsmithSharedEncoderT5ForConditionalGeneration"]})");
  for (const char* format : {"hf", "vllm"}) {
    EXPECT_THAT(refused("tandem", {.format = format}), HasSubstr("hidden states of another model")) << format;
    EXPECT_THAT(refused("shared", {.format = format}), HasSubstr("hidden states of another model")) << format;
  }
}

TEST_F(Exporting, UnknownFormatsAndWrongModelsAreExplained) {
  EXPECT_THAT(refused("llama", {.format = "vlm"}), HasSubstr("did you mean vllm?"));
  EXPECT_THAT(refused("llama", {.format = "gguf"}), HasSubstr("a name that ends in .gguf"));
  EXPECT_THAT(refused("llama", {.format = "speculators"}), HasSubstr("hidden states"));
  EXPECT_THAT(refused("nowhere", {}), HasSubstr("no such model directory"));
  fs::resize_file(folder_ / "llama/model.safetensors", 1000);
  EXPECT_NE(refused("llama", {}), "no error");
}

TEST_F(Exporting, AlphaIsComparedAgainstTheTarget) {
  ExportOptions options;
  options.target = folder_ / "target";
  const ExportSummary same = run("llama", "out", options);
  ASSERT_TRUE(same.before && same.after);
  EXPECT_EQ(same.before->alpha, same.after->alpha);
  EXPECT_GT(same.after->positions, 20);
  EXPECT_GT(same.after->alpha, 0.05);
  EXPECT_LT(same.after->alpha, 0.999);
  const auto proof = load_json(folder_ / "out/draftsmith/export.json").at("proof");
  EXPECT_DOUBLE_EQ(proof.at("alpha_after").at("alpha").get<double>(), same.after->alpha);

  options.dtype = "bf16";
  const ExportSummary narrow = run("llama", "narrow", options);
  EXPECT_NE(narrow.before->alpha, narrow.after->alpha);

  model::TransformerConfig other = model::tiny_llama();
  other.vocabulary = 40;
  save("other", other);
  options.target = folder_ / "other";
  EXPECT_THAT(refused("llama", options), HasSubstr("vocabularies of different sizes"));
  model::TransformerConfig sources = t5_config();
  sources.vocabulary = 31;
  save("sources", sources);
  options.target = folder_ / "sources";
  EXPECT_THAT(refused("llama", options), HasSubstr("of different kinds"));
  options.target = folder_ / "target";
  options.text = folder_ / "no.txt";
  EXPECT_NE(refused("llama", options), "no error");
}

TEST_F(Exporting, EveryKindOfMismatchIsFound) {
  const auto model = model::load_model(folder_ / "llama", {.pack = false});
  const Probes probes = make_probes(model->config());
  const ModelFacts before = facts_of(*model, probes, at::kFloat, nullptr);
  EXPECT_THAT(differences(before, before, {}, "out"), IsEmpty());

  ModelFacts after = before;
  after.parameters.erase("embedding.weight");
  EXPECT_THAT(text_of(differences(before, after, {}, "out")), HasSubstr("embedding.weight: is missing"));
  EXPECT_THAT(text_of(differences(after, before, {}, "out")),
              HasSubstr("embedding.weight: is in the export but not in the model"));

  after = before;
  after.logits = before.logits * 1.001;
  EXPECT_THAT(text_of(differences(before, after, {}, "out")), HasSubstr("other logits"));
  after.logits = before.logits * std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(text_of(differences(before, after, {}, "out")), HasSubstr("other logits"));

  ModelFacts aligned = before;
  aligned.alpha = {.alpha = 0.8, .agreement = 0.9, .positions = 10};
  after = aligned;
  after.alpha->alpha = 0.7;
  EXPECT_THAT(differences(aligned, after, {}, "out"), SizeIs(1));

  const at::Tensor norm = model->parameters().at("decoder.final_norm.weight");
  norm.add_(0.125);
  EXPECT_THAT(differences(before, facts_of(*model, probes, at::kFloat, nullptr), {}, "out"), SizeIs(2));
}

// A stage that trained a model from a text, and what the card says of it.
class Cards : public Exporting {
 protected:
  Cards() {
    make_directories(work_ / "corpus-00000000");
    write_done(work_ / "corpus-00000000", {.stage = "corpus",
                                           .kind = "corpus",
                                           .hash = std::string(64, 'c'),
                                           .options = {{"source", "$DATA/train.de"}},
                                           .inputs = {{"$DATA/train.de", std::string(64, 'd')}}});
    model::save_model(work_ / "drafter-11111111/model", model::TransformerModel(model::tiny_llama(), 5));
    write_done(work_ / "drafter-11111111", {.stage = "drafter",
                                            .kind = "train",
                                            .hash = std::string(64, 'a'),
                                            .options = {{"training", {{"length", "10 steps"}}}},
                                            .inputs = {{"@corpus", std::string(64, 'c')}}});
    replace_link(work_ / "drafter", "drafter-11111111");
    nlohmann::ordered_json results = {{"version", 1},
                                      {"suite", "s"},
                                      {"environment",
                                       {{"device", "a fast machine"},
                                        {"model", (folder_ / "target").string()},
                                        {"drafters", {{"small", (work_ / "drafter/model").string()}}}}}};
    const auto row = [](const std::string& name, const std::string& drafter, double speedup) {
      return nlohmann::ordered_json{{"name", name},
                                    {"method", "assisted"},
                                    {"params", {{"drafter", drafter}}},
                                    {"quality", {{"bleu", 27.5}}},
                                    {"speed", {{"speedup", speedup}}},
                                    {"acceptance", {{"alpha", nullptr}}}};
    };
    results["tasks"] = {{{"name", "test"},
                         {"metric", "bleu"},
                         {"baseline", row("greedy", "", 1)},
                         {"runs", {row("assisted.small", "small", 1.75), row("assisted.large", "large", 1.25)}}}};
    write_json(folder_ / "results.json", results);
  }

  std::string card_of(const fs::path& model, ExportOptions options) const {
    options.model = model;
    options.out = folder_ / "out";
    export_model(options, at::kCPU);
    return read_file(folder_ / "out/README.md");
  }

  const fs::path work_ = folder_ / "work";
};

TEST_F(Cards, SayWhatHowAndWhere) {
  const std::string card = card_of(work_ / "drafter/model", {.results = folder_ / "results.json"});
  EXPECT_TRUE(card.starts_with("---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n"));
  EXPECT_THAT(card,
              AllOf(HasSubstr("LlamaForCausalLM"), HasSubstr("31 token ids"), HasSubstr("assistant_model=drafter")));
  EXPECT_THAT(card, AllOf(HasSubstr("`drafter` (kind train"), HasSubstr(std::string(64, 'a')), HasSubstr("10 steps")));
  EXPECT_THAT(card, HasSubstr("| corpus | corpus | `" + std::string(64, 'c')));
  EXPECT_THAT(card, HasSubstr("| $DATA/train.de | `" + std::string(64, 'd')));
  EXPECT_THAT(card, AllOf(HasSubstr("a fast machine"), HasSubstr("| assisted.small | 27.50 | 1.75 | – |")));
  EXPECT_THAT(card, Not(HasSubstr("assisted.large"))) << "a run of another drafter";
}

TEST_F(Cards, SayWhatIsNotKnown) {
  const std::string card = card_of(folder_ / "llama", {});
  EXPECT_THAT(card, AllOf(HasSubstr("Not known"), HasSubstr("No evaluation was given")));
}

TEST_F(Cards, ResultsOfOtherModelsAreRefused) {
  EXPECT_THAT(refused("llama", {.results = folder_ / "results.json"}),
              AllOf(HasSubstr("does not measure the model"), HasSubstr("small (")));
  write_file_atomic(folder_ / "broken.json", R"({"suite": "s"})");
  EXPECT_THAT(refused("llama", {.results = folder_ / "broken.json"}), HasSubstr("is no results.json"));
}

// Found out before anything is written, not when the card is.
TEST_F(Cards, ResultsOfWrongTypesAreRefused) {
  const auto sound = load_json(folder_ / "results.json");
  const auto refusal = [&](const std::string& pointer, const nlohmann::json& value) {
    nlohmann::json changed = sound;
    changed[nlohmann::json::json_pointer(pointer)] = value;
    write_json(folder_ / "changed.json", changed);
    return error_of([&] { evaluate::load_results(folder_ / "changed.json"); });
  };
  for (const nlohmann::json& metric : {nlohmann::json(7), nlohmann::json("blue"), nlohmann::json()}) {
    EXPECT_THAT(refusal("/tasks/0/metric", metric), HasSubstr("no 'metric' that is known of task 'test'")) << metric;
  }
  EXPECT_THAT(refusal("/tasks/0/baseline/name", 7), HasSubstr("a 'baseline' without 'name' of task 'test'"));
  EXPECT_THAT(refusal("/tasks/0/baseline", {{"method", "greedy"}}), HasSubstr("a 'baseline' without 'name'"));
  EXPECT_EQ(refusal("/tasks/0/baseline", nlohmann::json::object()), "no error");
  EXPECT_EQ(refusal("/tasks/0/metric", "none"), "no error");
}

TEST_F(Cards, DamagedStagesBesideTheModelsAreNoneOfItsOwn) {
  for (const char* content : {"{", "{}", R"({"stage": 3})"}) {
    make_directories(work_ / "other-22222222");
    write_file_atomic(work_ / "other-22222222/DONE", content);
    EXPECT_THAT(card_of(work_ / "drafter/model", {}), HasSubstr("| corpus | corpus | `")) << content;
    fs::remove_all(folder_ / "out");
  }
}

TEST_F(Cards, AModelThatChangedSinceItsStageIsNotExported) {
  std::string config = read_file(work_ / "drafter/model/config.json");
  write_file_atomic(work_ / "drafter/model/config.json", config + " ");
  EXPECT_THAT(refused("work/drafter/model", {}), HasSubstr("was changed after the stage had finished"));
}

}  // namespace
}  // namespace draftsmith::recipes
