// `draftsmith generate` with each kind of drafter and each way to decode inside the model, as a user runs it.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/models/block_models.h"
#include "model/models/companion.h"
#include "model/models/deep_tandem.h"
#include "model/models/exits.h"
#include "model/models/router.h"
#include "model/models/shared_encoder.h"
#include "model/models/tandem.h"
#include "tests/cli/program.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/scoped_variable.h"

namespace draftsmith::test {
namespace {

using nlohmann::json;

// Runs `generate` on models that a test saves in its folder.
class MethodsProgram : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void save(const std::string& name, const model::TransformerModel& model) const { save_model(folder_ / name, model); }

  // Words of `more` that begin with @ are names in the folder. Without a type, numbers are of fp64.
  ProgramResult generate(const std::string& model, const std::vector<std::string>& more,
                         const std::string& prompts = kPrompts) const {
    std::vector<std::string> arguments = {"generate", "--model", path(model), "--ids", "--max-new-tokens", "15"};
    for (const std::string& word : more) arguments.push_back(word.starts_with("@") ? path(word.substr(1)) : word);
    if (std::ranges::find(more, "--dtype") == more.end()) arguments.insert(arguments.end(), {"--dtype", "fp64"});
    return run_program(arguments, prompts);
  }
  // Requires that lines are those of greedy decoding.
  void expect_greedy(const std::string& model, const std::vector<std::string>& more) const {
    const ProgramResult result = generate(model, more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, generate(model, {}).out) << testing::PrintToString(more);
  }
  // Returns the error of a command that must write nothing.
  std::string error(const std::string& model, const std::vector<std::string>& more,
                    const std::string& prompts = kPrompts) const {
    return refusal_of(generate(model, more, prompts), /*silent=*/true);
  }
  // Returns the objects of --json.
  std::vector<json> objects(const std::string& model, std::vector<std::string> more,
                            const std::string& prompts = kPrompts) const {
    more.emplace_back("--json");
    const ProgramResult result = generate(model, more, prompts);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::vector<json> found;
    for (const std::string& line : lines_of(result.out)) found.push_back(json::parse(line));
    return found;
  }

  const TemporaryDirectory folder_;
};

model::TransformerConfig lively_llama(int64_t layers) {
  model::TransformerConfig config = model::tiny_llama(layers);
  config.initializer_range = 0.7;
  config.tied_head = false;
  return config;
}

class TandemProgram : public MethodsProgram {
 protected:
  TandemProgram() {
    const model::TransformerModel primary(lively_llama(2), 3);
    save("primary", primary);
    save("other", model::TransformerModel(lively_llama(2), 4));
    const auto same = model::make_tandem_secondary(
        primary, primary, {.layer_map = {0, 1}, .projections = model::ProjectionStart::kIdentity});
    model::save_tandem(folder_ / "same", *same, {.primary_directory = folder_ / "primary"});
    const auto random = model::make_tandem_secondary(model::TransformerModel(model::tiny_llama(1), 5), primary);
    model::save_tandem(folder_ / "random", *random, {.primary_directory = folder_ / "primary"});
  }
};

TEST_F(TandemProgram, SpeedWritesThePrimarysTokensAndStandaloneTheSecondarys) {
  expect_greedy("primary", {"--drafter", "@same", "--method", "tandem-speed", "--window", "3"});
  expect_greedy("primary", {"--drafter", "@random", "--method", "tandem-speed", "--window", "3"});
  for (const char* free_token : {"--free-token=true", "--free-token=false"}) {
    expect_greedy("primary", {"--drafter", "@same", "--method", "tandem", "--window", "2", free_token});
  }
  const json line = objects("primary", {"--drafter", "@random", "--method", "tandem"}).front();
  EXPECT_NE(line.at("ids"), objects("primary", {}).front().at("ids"));
  const json& stats = line.at("stats");
  EXPECT_EQ(stats.at("accepted"), stats.at("drafted"));
  EXPECT_GT(stats.at("target_runs"), 0);
  EXPECT_LT(stats.at("target_runs"), stats.at("drafted"));
}

// Models of block prediction and deep Tandems.
TEST_F(MethodsProgram, ModelsOfBlocksDecodeAloneDraftAndAreDraftedFor) {
  model::TransformerConfig config = model::tiny_llama(2);
  config.initializer_range = 0.7;
  save("plain", model::TransformerModel(config, 3));
  save("blocks", model::TransformerModel(model::block_prediction_config(config, 4), 4));
  model::save_deep_tandem(folder_ / "deep", model::DeepTandemModel({.large = config, .small = config, .block = 2}, 5));
  const std::string prompts = "5 6 7 8\n9 8 7 6 5\n";
  const std::string plain = generate("plain", {}, prompts).out;
  for (const std::string model : {"blocks", "deep"}) {
    const ProgramResult alone = generate(model, {}, prompts);
    EXPECT_EQ(alone.exit_code, 0) << alone.err;
    EXPECT_EQ(lines_of(alone.out).size(), 2u);
    EXPECT_EQ(generate(model, {"--batch-size", "2"}, prompts).out, alone.out) << model;
    EXPECT_EQ(generate(model, {"--method", "assisted", "--drafter", "@plain"}, prompts).out, alone.out) << model;
    EXPECT_EQ(generate("plain", {"--method", "assisted", "--drafter", "@" + model}, prompts).out, plain) << model;
  }
  EXPECT_THAT(error("deep", {"--method", "ppd"}, prompts), HasSubstr("a transformer"));
}

TEST_F(MethodsProgram, DraftersShareTheirTargetsEncoder) {
  const model::TransformerConfig config =
      model::t5_config({.vocabulary = 31, .width = 64, .heads = 2, .head_width = 32, .ff_width = 96});
  const auto target = model::varied_model(config, 3, at::kFloat);
  save("target", *target);
  save("other", *model::varied_model(config, 4, at::kFloat));
  model::TransformerConfig narrow = config;
  narrow.width = 32;
  const auto small = model::make_shared_encoder_drafter(*model::varied_model(narrow, 5, at::kFloat), *target);
  model::save_with_companion(folder_ / "small", *small, folder_ / "target");
  // Target and drafter each have a type of weights of their own.
  for (const std::string type : {"fp32", "int8"}) {
    const ProgramResult greedy = generate("target", {"--dtype", type});
    for (const std::string drafter_type : {"fp32", "bf16"}) {
      const ProgramResult fast =
          generate("target", {"--dtype", type, "--drafter", "@small", "--drafter-dtype", drafter_type, "--method",
                              "speculative", "--temperature", "0", "--batch-size", "3"});
      EXPECT_EQ(fast.exit_code, 0) << fast.err;
      EXPECT_EQ(fast.out, greedy.out) << type << " " << drafter_type;
    }
  }
  EXPECT_THAT(error("small", {}), HasSubstr("--model TARGET --drafter DIR"));
  EXPECT_THAT(error("other", {"--drafter", "@small", "--method", "assisted"}),
              AllOf(HasSubstr(path("other")), HasSubstr(path("target"))));
  EXPECT_THAT(run_program({"inspect", path("small")}).out,
              AllOf(HasSubstr("DraftsmithSharedEncoderT5ForConditionalGeneration"),
                    HasSubstr("reads its target's states, width 64"), HasSubstr("../target, sha256")));
}

class RouterProgram : public MethodsProgram {
 protected:
  RouterProgram() {
    save("target", model::TransformerModel(model::t5_config(), 1));
    save("small", model::TransformerModel(model::t5_config(), 2));
    model::RouterConfig shape{.width = 16, .vocabulary = 40, .drafter = "work/small/model"};
    shape.drafter_hash = model::model_hash(folder_ / "small");
    model::save_router(folder_ / "router", model::Router(shape, 2));
  }
};

TEST_F(RouterProgram, GeneratesTheSameAndFitsItsDrafterAlone) {
  const auto with = [](const std::vector<std::string>& more) {
    return joined({"--method", "assisted", "--window-rule", "router"}, more);
  };
  expect_greedy("target", with({"--drafter", "@small", "--router", "@router"}));
  EXPECT_THAT(run_program({"inspect", path("router")}).out, HasSubstr("threshold 0.8, max_draft 16"));
  EXPECT_THAT(error("target", with({"--drafter", "@small"})), HasSubstr("--router DIR"));
  EXPECT_THAT(error("target", with({"--drafter", "@target", "--router", "@router"})),
              AllOf(HasSubstr("another drafter"), HasSubstr("work/small/model"), HasSubstr("target")));
  EXPECT_THAT(error("target", with({"--drafter", "lookup", "--router", "@router"})),
              HasSubstr("a drafter that is a model of its own"));
}

class InsideProgram : public MethodsProgram {
 protected:
  InsideProgram() {
    for (const std::string name : {"plain", "exits", "other"}) {
      const model::TransformerModel model(lively_llama(4), name == "other" ? 4 : 3);
      save(name, model);
      if (name == "plain") continue;
      const at::NoGradGuard no_gradients;
      model::Exits exits({.exits = {{.layer = 2, .head = model::ExitHead::kFull, .own_norm = true}}}, model, 5);
      exits.parameters().at("exit.2.head.weight").mul_(-1);
      exits.bind(name, model::model_hash(folder_ / name));
      model::save_exits(model::exits_directory(folder_ / name), exits);
    }
  }
};

TEST_F(InsideProgram, VerifiedExitsCalmAndPpdWriteWhatGreedyDecodingWrites) {
  expect_greedy("plain", {"--drafter", "exit:1", "--method", "assisted"});
  expect_greedy("exits", {"--drafter", "exit:2", "--method", "assisted"});
  expect_greedy("plain", {"--method", "early-exit", "--exit-layer", "4", "--fallback", "0.4"});
  expect_greedy("plain", {"--method", "calm", "--exit-threshold", "1", "--exit-decay", "0"});
  expect_greedy("plain", {"--method", "ppd", "--candidates", "5"});
  const json calm = objects("plain", {"--method", "calm", "--exit-threshold", "0.5"}).front();
  EXPECT_EQ(calm.at("stats").at("exits_by_layer").size(), 4U);
  EXPECT_GT(objects("plain", {"--method", "ppd"}).front().at("stats").at("early_predictions"), 0);
}

TEST_F(InsideProgram, EarlyExitDraftsWithTheModelsOwnExits) {
  const std::vector<std::string> bild = {"--method",   "early-exit", "--fallback",  "0",
                                         "--rollback", "inf",        "--verify-end"};
  std::vector<std::string> second = bild;
  second.insert(second.end(), {"--exit-layer", "2"});
  const json own = objects("exits", second).front();
  EXPECT_GT(own.at("stats").at("drafted"), 0);
  EXPECT_EQ(own.at("stats").at("layer_runs").get<int64_t>() % 4, 0);
  EXPECT_EQ(objects("exits", bild).front().at("ids"), own.at("ids"));    // its first exit is the default
  EXPECT_NE(objects("plain", second).front().at("ids"), own.at("ids"));  // layer 2 is read by the model's head
  second.insert(second.end(), {"--exits", "@exits/draftsmith/exits"});
  EXPECT_EQ(objects("plain", second).front().at("ids"), own.at("ids"));  // "plain" is the same model
}

TEST_F(InsideProgram, FlagsWithoutEffectAreWarnedOf) {
  const ProgramResult ignored = generate("plain", {"--method", "early-exit", "--drafter", "@other"});
  EXPECT_EQ(ignored.exit_code, 0);
  EXPECT_THAT(ignored.err, HasSubstr("--drafter has no effect on method early-exit"));
  EXPECT_THAT(generate("plain", {"--top-p", "0.5"}).err, HasSubstr("--top-p has no effect at temperature 0"));
  EXPECT_THAT(generate("plain", {"--method", "sample", "--top-p", "0.5"}).err, Not(HasSubstr("no effect")));
  EXPECT_THAT(generate("plain", {"--exits", "@exits", "--exit-layer", "2"}).err,
              AllOf(HasSubstr("--exits has no effect on method greedy"), HasSubstr("--exit-layer has no effect")));
}

// Weights of int8 and bf16. Widths are above a group of int8's inputs.
class WeightTypes : public MethodsProgram {
 protected:
  WeightTypes() {
    model::ModelSizes sizes{.vocabulary = 31, .width = 136, .heads = 4, .head_width = 34, .ff_width = 150};
    sizes.encoder_layers = 2;
    sizes.decoder_layers = 3;
    for (model::TransformerConfig config : {model::t5_config(sizes), model::llama_config(sizes)}) {
      config.initializer_range = 0.3;
      config.tied_head = false;
      save(config.family, model::TransformerModel(config, 3));
      config.decoder_layers = 2;
      save(config.family + "-drafter", model::TransformerModel(config, 3));
    }
  }
};

// Lossless for the target as it runs, whatever the drafter's type. Several drafts are verified in one run.
TEST_F(WeightTypes, SpeculativeOutputsAreTheTargetsGreedyOnes) {
  const std::string prompts =
      "5 9 14 3\n7\n11 12 13 20 21 8\n2 3 4 5 6 7 8 9 10\n30 29 28\n17 17 17 17\n6 28 19 4 23 11 12\n";
  for (const std::string model : {"t5", "llama"}) {
    int64_t accepted = 0;
    for (const auto& [target, drafter] :
         std::vector<std::pair<std::string, std::string>>{{"int8", "fp32"}, {"bf16", "int8"}}) {
      const std::vector<std::string> options{"--dtype", target, "--batch-size", "5", "--temperature", "0"};
      const auto greedy = objects(model, options, prompts);
      for (const std::string& small : {"@" + model + "-drafter", "@" + model}) {
        std::vector<std::string> drafts = options;
        drafts.insert(drafts.end(), {"--method", "speculative", "--drafter", small, "--drafter-dtype", drafter});
        const auto found = objects(model, drafts, prompts);
        ASSERT_EQ(found.size(), greedy.size());
        for (size_t line = 0; line < found.size(); ++line) {
          EXPECT_EQ(found[line].at("ids"), greedy[line].at("ids")) << small << " in " << drafter << " for " << target;
          accepted += found[line].at("stats").at("accepted").get<int64_t>();
        }
      }
    }
    EXPECT_GT(accepted, 100);
  }
}

TEST_F(WeightTypes, GiveTheSameOnEveryInstructionSet) {
  const std::string usual = generate("t5", {"--dtype", "int8"}).out;
  {
    const ScopedVariable lowered("DRAFTSMITH_CPU", "portable");
    EXPECT_EQ(generate("t5", {"--dtype", "int8"}).out, usual);
  }
  const ScopedVariable unknown("DRAFTSMITH_CPU", "mmx");
  EXPECT_THAT(error("t5", {"--dtype", "int8"}),
              AllOf(HasSubstr("DRAFTSMITH_CPU"), HasSubstr("amx, avx512, avx2 or portable"), HasSubstr("mmx")));
}

TEST_F(WeightTypes, OfDraftersAreExplained) {
  EXPECT_THAT(generate("t5", {"--method", "assisted", "--drafter", "lookup", "--drafter-dtype", "int8"}).err,
              HasSubstr("--drafter-dtype has no effect on drafter lookup"));
  EXPECT_THAT(generate("t5", {"--drafter-dtype", "int8"}).err, HasSubstr("--drafter-dtype has no effect without"));
  EXPECT_THAT(error("t5", {"--drafter-dtype", "int4"}),
              AllOf(HasSubstr("--drafter-dtype"), HasSubstr("int8"), HasSubstr("'int4'")));
}

}  // namespace
}  // namespace draftsmith::test
