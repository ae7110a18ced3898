// `draftsmith data tokenize` as a user runs it, with a byte-level tokenizer.json.
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/cli/program.h"
#include "tests/data/tokenizers/tokenizer_files.h"
#include "tests/support/files.h"

namespace draftsmith::test {
namespace {

using testing::HasSubstr;

TEST(TokenizeProgram, IdsOfEachLineAndBack) {
  const TemporaryDirectory directory;
  write_text(directory / "tokenizer.json", data::byte_level_json({"h e", "l l", "he ll", "hell o"}).dump());
  const std::string model = directory.path().string();
  const ProgramResult ids = run_program({"data", "tokenize", "--model", model}, "hello hello\n\né\n");
  EXPECT_EQ(ids.exit_code, 0) << ids.err;
  EXPECT_EQ(ids.out, "259 32 259\n\n195 169\n");
  const ProgramResult text = run_program({"data", "tokenize", "--model", model, "--decode"}, ids.out);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(text.out, "hello hello\n\né\n");
}

TEST(TokenizeProgram, EndsLinesWithEosWhereThereIsOne) {
  const TemporaryDirectory directory;
  write_text(directory / "tokenizer.json", data::byte_level_json({"h e"}).dump());
  const std::string model = directory.path().string();
  const ProgramResult none = run_program({"data", "tokenize", "--model", model, "--eos"}, "he\n");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("no EOS"));
  write_text(directory / "tokenizer_config.json", R"({"eos_token": "z"})");
  EXPECT_EQ(run_program({"data", "tokenize", "--model", model, "--eos"}, "he\n").out, "256 122\n");
}

TEST(TokenizeProgram, NamesWhatIsNotSupported) {
  const TemporaryDirectory directory;
  auto file = data::byte_level_json({});
  file["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
  write_text(directory / "tokenizer.json", file.dump());
  const ProgramResult result = run_program({"data", "tokenize", "--model", directory.path().string()}, "he\n");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("BertPreTokenizer"));
  EXPECT_TRUE(result.out.empty());
}

}  // namespace
}  // namespace draftsmith::test
