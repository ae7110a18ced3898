// `draftsmith generate` with weights of int8 and bf16, as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "tests/cli/program.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/scoped_variable.h"

namespace draftsmith::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kSevenPrompts =
    "5 9 14 3\n7\n11 12 13 20 21 8\n2 3 4 5 6 7 8 9 10\n30 29 28\n17 17 17 17\n6 28 19 4 23 11 12\n";

// An encoder-decoder and a decoder-only target with a drafter each. Widths are above a group of int8's inputs.
class WeightTypes : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryDirectory>();
    const model::ModelSizes sizes{.vocabulary = 31,
                                  .width = 136,
                                  .heads = 4,
                                  .head_width = 34,
                                  .ff_width = 150,
                                  .encoder_layers = 2,
                                  .decoder_layers = 3};
    for (model::TransformerConfig config : {model::t5_config(sizes), model::llama_config(sizes)}) {
      config.initializer_range = 0.3;
      config.tied_head = false;
      save_model(*folder_ / config.family, model::TransformerModel(config, 3));
      config.decoder_layers = 2;
      save_model(*folder_ / (config.family + "-drafter"), model::TransformerModel(config, 3));
    }
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string path(const std::string& name) { return (*folder_ / name).string(); }

  static ProgramResult generate(const std::string& model, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"generate", "--model", path(model), "--ids", "--max-new-tokens", "15"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments, kSevenPrompts);
  }

  struct Decoded {
    std::vector<std::vector<int64_t>> ids;
    int64_t accepted = 0;
  };
  static Decoded decoded(const std::string& model, std::vector<std::string> options) {
    options.emplace_back("--json");
    const ProgramResult result = generate(model, options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    Decoded all;
    for (const std::string& line : lines_of(result.out)) {
      const auto object = nlohmann::json::parse(line);
      all.ids.push_back(object.at("ids"));
      all.accepted += object.at("stats").at("accepted").get<int64_t>();
    }
    EXPECT_EQ(all.ids.size(), 7U);
    return all;
  }

  static std::unique_ptr<TemporaryDirectory> folder_;
};
std::unique_ptr<TemporaryDirectory> WeightTypes::folder_;

// Lossless for the target as it runs, whatever the drafter's type, for few rows and many.
TEST_F(WeightTypes, SpeculativeOutputsAreTheTargetsGreedyOnes) {
  const std::vector<std::pair<std::string, std::string>> pairs{
      {"int8", "int8"}, {"int8", "fp32"}, {"fp32", "int8"}, {"bf16", "int8"}};
  for (const std::string model : {"t5", "llama"}) {
    int64_t accepted = 0;
    for (const auto& [target, drafter] : pairs) {
      for (const std::string batch : {"1", "5"}) {
        const std::vector<std::string> options{"--dtype", target, "--batch-size", batch, "--temperature", "0"};
        const Decoded greedy = decoded(model, options);
        const auto expect_greedy = [&](const std::string& method, const std::string& small) {
          std::vector<std::string> drafts = options;
          drafts.insert(drafts.end(), {"--method", method, "--drafter", path(small), "--drafter-dtype", drafter});
          const Decoded found = decoded(model, drafts);
          EXPECT_EQ(found.ids, greedy.ids) << small << " in " << drafter << " for " << target << ", batch " << batch;
          accepted += found.accepted;
        };
        expect_greedy("speculative", model + "-drafter");
        expect_greedy("assisted", model);  // the target itself drafts
      }
    }
    EXPECT_GT(accepted, 400) << "drafts are verified in runs of several tokens";
  }
}

TEST_F(WeightTypes, RoundTheTargetsProbabilities) {
  const auto numbers = [](const std::string& type) {
    const ProgramResult result = generate("t5", {"--dtype", type, "--json", "--log-probs"});
    return nlohmann::json::parse(lines_of(result.out).front()).at("log_probs").front().get<double>();
  };
  EXPECT_NE(numbers("int8"), numbers("fp32"));
  EXPECT_NEAR(numbers("int8"), numbers("fp32"), 0.5);
  EXPECT_NE(numbers("bf16"), numbers("fp32"));
  EXPECT_NEAR(numbers("bf16"), numbers("fp32"), 0.2);
}

TEST_F(WeightTypes, EveryInstructionSetGivesTheTextOfInt8) {
  const ProgramResult usual = generate("t5", {"--dtype", "int8"});
  const auto with = [](const char* instructions) {
    const ScopedVariable lowered("DRAFTSMITH_CPU", instructions);
    return generate("t5", {"--dtype", "int8"});
  };
  const ProgramResult portable = with("portable"), unknown = with("mmx");
  EXPECT_EQ(portable.out, usual.out);
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err,
              AllOf(HasSubstr("DRAFTSMITH_CPU"), HasSubstr("amx, avx512, avx2 or portable"), HasSubstr("mmx")));
}

TEST_F(WeightTypes, ADrafterThatIsNoModelHasNone) {
  const ProgramResult result =
      generate("t5", {"--method", "assisted", "--drafter", "lookup", "--drafter-dtype", "int8"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("--drafter-dtype has no effect on drafter lookup"));
  EXPECT_THAT(generate("t5", {"--drafter-dtype", "int8"}).err, HasSubstr("--drafter-dtype has no effect without"));
  const ProgramResult wrong = generate("t5", {"--drafter-dtype", "int4"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("--drafter-dtype"), HasSubstr("int8"), HasSubstr("'int4'")));
}

TEST_F(WeightTypes, ADamagedCheckpointIsNamed) {
  fs::copy(*folder_ / "llama", *folder_ / "damaged");
  const fs::path file = *folder_ / "damaged/model.safetensors";
  std::string bytes = read_file(file);
  std::string name;
  {
    const model::ModelDirectory opened(*folder_ / "damaged");
    name = opened.parameters().back().tensor.name;  // the head
    const auto tensor = opened.weights().bytes(name);
    const size_t begin = bytes.find(std::string(reinterpret_cast<const char*>(tensor.data()), tensor.size()));
    bytes.replace(begin + 40, 4, std::string(4, '\xff'));
  }
  write_file_atomic(file, bytes);
  const ProgramResult result = generate("damaged", {"--dtype", "int8"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("damaged/model.safetensors"), HasSubstr("'" + name + "'")));
}

TEST_F(WeightTypes, AreExplainedByHelp) {
  const ProgramResult help = run_program({"generate", "--help"});
  EXPECT_THAT(help.out, AllOf(HasSubstr("--drafter-dtype"), HasSubstr("int8")));
}

}  // namespace
}  // namespace draftsmith::test
