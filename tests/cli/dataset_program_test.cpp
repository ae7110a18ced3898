// Data sets by name and chat messages, through the program.

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "tests/cli/program.h"
#include "tests/support/files.h"
#include "tests/support/paths.h"

namespace draftsmith::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Runs the program with a data folder of its own. Tests that decode skip without the shared data's model.
class DatasetProgram : public testing::Test {
 protected:
  DatasetProgram() {
    fs::create_directories(folder_ / "data/mine");
    write_text(folder_ / "data/mine/test.de", "once upon a time\nthere was a cat\n");
    write_text(folder_ / "data/mine/test.en", "a girl\nthe cat\n");
    use_data(folder_ / "data");
  }
  ~DatasetProgram() override { unsetenv("DRAFTSMITH_DATA"); }

  static void use_data(const fs::path& folder) { setenv("DRAFTSMITH_DATA", folder.c_str(), 1); }
  fs::path model() const { return shared_ / "models/stories260k_hf"; }
  bool has_model() const { return fs::exists(model() / "config.json"); }

  // Runs a suite. Options make it short.
  ProgramResult evaluate(const fs::path& suite, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"eval", suite.string(), "--out", (folder_ / "out").string(), "--quiet"};
    for (const char* short_way : {"max_new_tokens=6", "repetitions=1", "warmup=0", "resamples=10", "forced_lines=0",
                                  "calibrate=false", "device=\"cpu\""}) {
      more.insert(more.end(), {"--set", short_way});
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  }

  nlohmann::json results() { return load_json(folder_ / "out/results.json"); }

  const fs::path shared_ = data_dir();  // before the tests name another folder
  TemporaryDirectory folder_;
};

constexpr const char* kSuite = R"(
drafter = [{ name = "look-up", lookup = true }]
[[run]]
method = "assisted"
drafter = ["look-up"]
)";

TEST_F(DatasetProgram, ListPrintsWhatThereIs) {
  const ProgramResult result = run_program({"data", "list"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("mine/test"), HasSubstr("de-en, en-de"), HasSubstr("parallel text")));
  use_data(folder_ / "nowhere");
  setenv("SACREBLEU", (folder_ / "nowhere").c_str(), 1);
  EXPECT_EQ(run_program({"data", "list"}).exit_code, 2);
  unsetenv("SACREBLEU");
}

TEST_F(DatasetProgram, MistakesInNamesExitWithTwo) {
  write_text(folder_ / "suite.toml", std::string("model = \"") + folder_.path().string() +
                                         "\"\ntask = { dataset = \"mine/tset\", direction = \"de-en\" }\n" + kSuite);
  const ProgramResult result = run_program({"validate", (folder_ / "suite.toml").string()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("suite.toml:2"), HasSubstr("did you mean mine/test?")));
  write_text(folder_ / "data/mine/test.en", "a girl\n");
  const ProgramResult fewer =
      run_program({"validate", (folder_ / "suite.toml").string(), "--set", "task.mine/tset.dataset=mine/test"});
  EXPECT_THAT(fewer.err, HasSubstr("fewer references than sources"));
}

TEST_F(DatasetProgram, PathsOfSuitesMayLieInTheDataFolder) {
  if (!has_model()) GTEST_SKIP() << "no " << model();
  fs::create_directories(folder_ / "data/models");
  fs::create_directory_symlink(model(), folder_ / "data/models/stories");
  write_text(folder_ / "suite.toml", std::string("model = \"$DATA/models/stories\"\n[[task]]\nname = \"mine\"\n") +
                                         "source = \"$DATA/mine/test.de\"\nreferences = [\"$DATA/mine/test.en\"]\n" +
                                         "[[run]]\nmethod = \"assisted\"\ndrafter = [\"look-up\"]\n" +
                                         "[[drafter]]\nname = \"look-up\"\nlookup = true\n");
  const ProgramResult result = evaluate(folder_ / "suite.toml");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(results()["tasks"][0]["lines"], 2);
}

TEST_F(DatasetProgram, PathsThatAreNotThereAreNamedWithTheirLinesAndTheDataFolder) {
  write_text(folder_ / "suite.toml", std::string("model = \"$DATA/mine\"\n[[task]]\nname = \"mine\"\n") +
                                         "source = \"$DATA/mine/test.de\"\nreferences = [\"$DATA/mine/tset.en\"]\n" +
                                         "[[task]]\nname = \"other\"\nsource = \"no/such/file\"\n");
  const std::string suite = (folder_ / "suite.toml").string();
  const ProgramResult missing = evaluate(suite);
  EXPECT_EQ(missing.exit_code, 2);
  const std::string data = (folder_ / "data").string();
  EXPECT_THAT(missing.err, AllOf(HasSubstr("suite.toml:5"), HasSubstr(data + "/mine/tset.en (not there)"),
                                 HasSubstr("$DATA is " + data + "; set DRAFTSMITH_DATA"), HasSubstr("suite.toml:8"),
                                 HasSubstr("relative to the current directory")));
  EXPECT_THAT(missing.err, Not(HasSubstr("suite.toml:1")));
  use_data(folder_ / "nowhere");
  const ProgramResult nowhere = run_program({"validate", suite});
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_THAT(nowhere.err, AllOf(HasSubstr("suite.toml:1"), HasSubstr("nowhere (not there); set DRAFTSMITH_DATA")));
}

TEST_F(DatasetProgram, TheExampleOfTheDocumentsRuns) {
  if (!has_model()) GTEST_SKIP() << "no " << model();
  const fs::path example = source_dir() / "docs/examples/held_out.toml";
  EXPECT_LT(lines_of(read_file(example)).size(), 10U);
  const ProgramResult result = evaluate(example, {"--set", "model=" + model().string()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(results()["tasks"][0]["name"], "mine/test");
  EXPECT_EQ(results()["tasks"][0]["metric"], "bleu");
  fs::copy(folder_ / "data/mine", folder_ / "data/other");
  const ProgramResult other =
      evaluate(example, {"--set", "model=" + model().string(), "--set", "task.mine/test.dataset=other/test"});
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_EQ(results()["tasks"][0]["name"], "other/test");
}

TEST_F(DatasetProgram, SpecBenchIsATableOfCategories) {
  if (!has_model() || !fs::exists(shared_ / "spec_bench")) GTEST_SKIP() << "no " << shared_ / "spec_bench";
  use_data(shared_);
  write_text(folder_ / "suite.toml",
             "model = \"" + model().string() +
                 "\"\ntask = { dataset = \"spec_bench\", categories = [\"translation\", \"summarization\"], limit = 2, "
                 "max_source_tokens = 64 }\n" +
                 kSuite);
  const ProgramResult result = evaluate(folder_ / "suite.toml");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("spec_bench by category"), HasSubstr("translation"),
                                HasSubstr("summarization"), HasSubstr("geometric mean")));
  const auto tasks = results()["tasks"];
  ASSERT_EQ(tasks.size(), 2U);
  EXPECT_EQ(tasks[0]["metric"], "bleu");
  EXPECT_EQ(tasks[1]["metric"], "rouge");
}

TEST_F(DatasetProgram, ConversationsAreLearnedAndDecoded) {
  if (!has_model()) GTEST_SKIP() << "no " << model();
  const fs::path chat_model = folder_ / "model";
  fs::copy(model(), chat_model);
  fs::permissions(chat_model, fs::perms::owner_all);
  write_text(folder_ / "data/mine/chat.jsonl",
             "{\"messages\": [{\"role\": \"user\", \"content\": \"tell a story\"}, "
             "{\"role\": \"assistant\", \"content\": \"Once upon a time\"}]}\n");
  write_text(folder_ / "suite.toml", "model = \"" + chat_model.string() +
                                         "\"\ntask = { dataset = \"mine/chat\", metric = { name = \"chrf\" } }\n" +
                                         kSuite);
  fs::remove(chat_model / "chat_template.jinja");
  EXPECT_THAT(evaluate(folder_ / "suite.toml").err, HasSubstr("there is no chat template"));
  write_text(chat_model / "chat_template.jinja", "\n{{ raise_exception('no stories') }}");
  const ProgramResult refused = evaluate(folder_ / "suite.toml");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("chat_template.jinja:2"), HasSubstr("no stories")));
  write_text(chat_model / "chat_template.jinja",
             "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
             "{% if add_generation_prompt %}assistant: {% endif %}");
  const ProgramResult result = evaluate(folder_ / "suite.toml");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(results()["tasks"][0]["metric"], "chrf");
  const ProgramResult prepared = run_program({"data", "prepare", "--dataset", "mine/chat", "--tokenizer",
                                              chat_model.string(), "--out", (folder_ / "chat.h5").string()});
  EXPECT_EQ(prepared.exit_code, 0) << prepared.err;
  const ProgramResult shown =
      run_program({"data", "show", (folder_ / "chat.h5").string(), "--tokenizer", chat_model.string()});
  EXPECT_THAT(shown.out, AllOf(HasSubstr("user: tell a story"), HasSubstr("Once upon a time")));
}

}  // namespace
}  // namespace draftsmith::test
