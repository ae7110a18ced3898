// `draftsmith generate` of a decoder-only model as a user runs it: streaming, samples, prompts beyond the context.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "model/checkpoint.h"
#include "tests/cli/program.h"
#include "tests/data/tokenizer_files.h"

namespace draftsmith::test {
namespace {

using testing::HasSubstr;

// Random weights over a byte-level tokenizer: its text is full of broken characters.
class GenerateProgram : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryDirectory>();
    data::write_text(*folder_ / "tokenizer.json", data::byte_level_json({"h e", "Ã ©", "æ Ĺ"}).dump());
    model::TransformerConfig config;
    config.family = "llama";
    config.encoder_decoder = false;
    config.vocabulary = 264;  // the tokenizer's 259 and padding
    config.width = 12;
    config.heads = 3;
    config.kv_heads = 3;
    config.head_width = 4;
    config.ff_width = 20;
    config.decoder_layers = 1;
    config.gated = true;
    config.positions = model::Positions::kRotary;
    config.rotary.width = 4;
    config.attention_scale = 0.5;
    config.max_positions = 24;
    config.eos = {255};
    model::SaveOptions save;
    save.tokenizer = *folder_ / "tokenizer.json";
    save_model(*folder_ / "model", model::TransformerModel(config, 3), save);
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static ProgramResult generate(const std::vector<std::string>& more, const std::string& input) {
    std::vector<std::string> arguments = {"generate", "--model", (*folder_ / "model").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments, input);
  }

  static std::unique_ptr<TemporaryDirectory> folder_;
};
std::unique_ptr<TemporaryDirectory> GenerateProgram::folder_;

TEST_F(GenerateProgram, StreamingGivesTheSameTextAsLinesDo) {
  const std::string input = "he said\nthere\nhello\n";
  for (const std::vector<std::string>& options : {std::vector<std::string>{"--method", "sample", "--num-samples", "3"},
                                                  {"--method", "sample", "--num-samples", "2", "--batch-size", "2"},
                                                  {"--method", "greedy", "--ids"}}) {
    std::vector<std::string> live = options;
    live.emplace_back("--stream");
    const std::string lines_in = options.back() == "--ids" ? "104 101\n32\n104\n" : input;
    const ProgramResult whole = generate(options, lines_in);
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    EXPECT_EQ(generate(live, lines_in).out, whole.out);
    EXPECT_GT(whole.out.size(), 20u);
  }
}

TEST_F(GenerateProgram, StreamingAndJsonExcludeEachOther) {
  const ProgramResult result = generate({"--stream", "--json"}, "he\n");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--stream prints text"));
}

TEST_F(GenerateProgram, PromptsBeyondTheContextAreRefusedCutOrSkipped) {
  const std::string input = "short\n" + std::string(40, 'x') + "\n";
  const ProgramResult refused = generate({"--max-new-tokens", "4"}, input);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(refused.out, "");  // nothing before all prompts are known to fit
  EXPECT_THAT(refused.err, HasSubstr("input 2: the prompt leaves no room"));
  EXPECT_THAT(refused.err, HasSubstr("fewer than 24 tokens"));
  EXPECT_THAT(refused.err, HasSubstr("40 tokens"));

  std::string long_line;
  for (int i = 0; i < 40; ++i) long_line += "7 ";
  const ProgramResult skipped =
      generate({"--max-new-tokens", "4", "--ids", "--long-prompts", "skip"}, "104 101\n" + long_line + "\n");
  EXPECT_EQ(skipped.exit_code, 0) << skipped.err;
  EXPECT_TRUE(skipped.out.ends_with("\n\n")) << skipped.out;
  EXPECT_THAT(skipped.err, HasSubstr("1 of 2 prompts fill the context and are skipped"));

  const ProgramResult cut = generate({"--max-new-tokens", "4", "--long-prompts", "truncate-left"}, input);
  EXPECT_EQ(cut.exit_code, 0) << cut.err;
  EXPECT_THAT(cut.err, HasSubstr("lose their beginning to fit the context (the first: input 2, 20 tokens dropped)"));
}

TEST_F(GenerateProgram, FewerNewTokensThanWantedAreAnnounced) {
  const ProgramResult result = generate({"--max-new-tokens", "30"}, "twelve bytes\n");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("leave room in the context for fewer new tokens than wanted"));
  EXPECT_THAT(result.err, HasSubstr("(the first: input 1, 12 of 30)"));
}

}  // namespace
}  // namespace draftsmith::test
