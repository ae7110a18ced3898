// Suites through the command line: mistakes are found before anything runs, data sets by name and chat messages are
// evaluated, and results are compared.
#include <cstdlib>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/files.h"
#include "base/json.h"
#include "base/utf8.h"
#include "tests/cli/program.h"
#include "tests/evaluate/made_results.h"
#include "tests/support/files.h"
#include "tests/support/paths.h"

namespace draftsmith::test {
namespace {

namespace fs = std::filesystem;
using evaluate::made_setting;

constexpr const char* kBadSuite = R"(model = "DIR"
drafter = [{ name = "look-up", lookup = true }]
task = [
  { name = "val", source = "DIR/val.src", references = ["DIR/val.ref"] },
  { name = "test", source = "DIR/test.src", references = ["DIR/test.ref"] },
]
[[run]]
method = "speculative"
drafter = ["look-up"]
temperature = 0
window = [1, 2]
choose_on = "val"
max_drop = [0]
)";

// Suite whose model directory holds no model: what is found wrong with it is found before a model is loaded.
class BadSuite : public testing::Test {
 protected:
  BadSuite() {
    for (const char* file : {"val.src", "val.ref"}) write_text(folder_ / file, "a b\nc\nd\n");
    for (const char* file : {"test.src", "test.ref"}) write_text(folder_ / file, "e f\ng\n");
    write_suite("", "");
  }

  // Writes the suite with one piece of its text replaced.
  void write_suite(const std::string& old, const std::string& by) const {
    ASSERT_THAT(kBadSuite, HasSubstr(old));
    const std::string changed = old.empty() ? kBadSuite : replace_all(kBadSuite, old, by);
    write_text(suite(), replace_all(changed, "DIR", folder_.path().string()));
  }
  std::string suite() const { return (folder_ / "suite.toml").string(); }
  std::string out() const { return (folder_ / "out").string(); }

  // Requires that validate and eval refuse the suite, and that eval writes nothing.
  void expect_refused(const testing::Matcher<const std::string&>& message) const {
    for (const auto& command :
         std::vector<std::vector<std::string>>{{"validate", suite()}, {"eval", suite(), "--out", out()}}) {
      EXPECT_THAT(refusal_of(run_here(command)), message) << command.front();
    }
    EXPECT_FALSE(fs::exists(out()));
  }

  const TemporaryDirectory folder_;
};

TEST_F(BadSuite, RunsThatCannotBe) {
  EXPECT_EQ(run_here({"validate", suite()}).exit_code, 0);
  write_suite("window = [1, 2]", "window = []");
  expect_refused(AllOf(HasSubstr("suite.toml:11"), HasSubstr("the list is empty")));
  write_suite("references = [\"DIR/val.ref\"]", "metric = { name = \"rouge\" }");
  expect_refused(AllOf(HasSubstr("suite.toml:4: task[0]"), HasSubstr("a task needs references to be scored")));
  write_suite("speculative", "speculativ");
  expect_refused(HasSubstr("did you mean 'speculative'?"));
}

TEST_F(BadSuite, NumbersOutsideOfTheirRange) {
  for (const std::string flag : {"--wait-for-idle=-1", "--wait-for-idle=1441", "--wait-for-idle=0.5",
                                 "--wait-for-idle=nan", "--wait-for-idle=soon", "--precision=1.5"}) {
    EXPECT_THAT(refusal_of(run_here({"eval", suite(), "--out", out(), flag})),
                HasSubstr(flag.substr(2, flag.find('=') - 2)));
  }
}

TEST_F(BadSuite, FilesThatAreNotThere) {
  write_suite("model = \"DIR\"", "model = \"no/model\"");
  expect_refused(AllOf(HasSubstr("suite.toml:1:"), HasSubstr("no/model (not there)")));
  write_suite("", "");
  EXPECT_THAT(run_here({"eval", suite(), "--out", out()}).err, HasSubstr("config.json"));
  EXPECT_FALSE(fs::exists(out()));
  write_text(folder_ / "test.ref", "e f\n");
  expect_refused(AllOf(HasSubstr("test.ref"), HasSubstr("2 lines, as in"), HasSubstr("found:    1 line")));
}

TEST_F(BadSuite, TheSameFileForValidationAndTest) {
  fs::create_hard_link(folder_ / "val.src", folder_ / "again.src");
  write_suite("DIR/test.src", "DIR/again.src");
  write_text(folder_ / "test.ref", "e f\ng\nh\n");
  expect_refused(AllOf(HasSubstr("suite.toml:5: task[1]"), HasSubstr("chosen are reported on")));
}

TEST_F(BadSuite, ResultsOfAnotherVersionAreNeitherReadNorReplaced) {
  fs::create_directories(out());
  const std::string later = "{\"version\": 99, \"suite\": \"s\", \"environment\": {}, \"tasks\": []}";
  write_text(folder_ / "out/results.json", later);
  for (const auto& command : std::vector<std::vector<std::string>>{
           {"report", out()}, {"compare", out(), out()}, {"eval", suite(), "--out", out()}}) {
    EXPECT_THAT(refusal_of(run_here(command)), AllOf(HasSubstr("out/results.json"), HasSubstr("found:    99")));
  }
  EXPECT_EQ(read_file(folder_ / "out/results.json"), later);
}

constexpr const char* kLookupRun = R"(
drafter = [{ name = "look-up", lookup = true }]
[[run]]
method = "assisted"
drafter = ["look-up"]
)";

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

  // Writes a suite of one task and a run with look-up. Returns its file.
  std::string write_suite(const std::string& model, const std::string& task) const {
    return write_text(folder_ / "suite.toml", fmt::format("model = \"{}\"\ntask = {}\n{}", model, task, kLookupRun));
  }
  // Runs a suite. Options make it short.
  ProgramResult evaluate(const std::string& suite, std::vector<std::string> more = {}) const {
    for (const char* short_way : {"max_new_tokens=6", "repetitions=1", "warmup=0", "resamples=10", "forced_lines=0",
                                  "calibrate=false", "device=\"cpu\""}) {
      more.insert(more.end(), {"--set", short_way});
    }
    return run_program(joined({"eval", suite, "--out", folder_ / "out", "--quiet"}, more));
  }
  nlohmann::json results() const { return load_json(folder_ / "out/results.json"); }

  const fs::path shared_ = data_dir();  // before the tests name another folder
  const TemporaryDirectory folder_;
};

TEST_F(DatasetProgram, MistakesInNamesExitWithTwo) {
  const std::string suite = write_suite(folder_.path().string(), "{ dataset = \"mine/tset\", direction = \"de-en\" }");
  EXPECT_THAT(run_here({"validate", suite}).err,
              AllOf(HasSubstr("suite.toml:2"), HasSubstr("did you mean mine/test?")));
  write_text(folder_ / "data/mine/test.en", "a girl\n");
  EXPECT_THAT(run_here({"validate", suite, "--set", "task.mine/tset.dataset=mine/test"}).err,
              HasSubstr("the task has fewer references than sources"));
}

TEST_F(DatasetProgram, PathsThatAreNotThereAreNamedWithTheirLinesAndTheDataFolder) {
  const std::string suite =
      write_text(folder_ / "suite.toml",
                 "model = \"$DATA/mine\"\n[[task]]\nname = \"mine\"\nsource = \"$DATA/mine/test.de\"\n"
                 "references = [\"$DATA/mine/tset.en\"]\n[[task]]\nname = \"other\"\nsource = \"no/such/file\"\n");
  const std::string data = (folder_ / "data").string();
  const std::string missing = run_here({"validate", suite}).err;
  EXPECT_THAT(missing, AllOf(HasSubstr("suite.toml:5"), HasSubstr(data + "/mine/tset.en (not there)"),
                             HasSubstr("$DATA is " + data + "; set DRAFTSMITH_DATA"), HasSubstr("suite.toml:8"),
                             HasSubstr("relative to the current directory"), Not(HasSubstr("suite.toml:1"))));
  use_data(folder_ / "nowhere");
  EXPECT_THAT(run_here({"validate", suite}).err,
              AllOf(HasSubstr("suite.toml:1"), HasSubstr("nowhere (not there); set DRAFTSMITH_DATA")));
}

TEST_F(DatasetProgram, TheExampleOfTheDocumentsRuns) {
  if (!has_model()) GTEST_SKIP() << "no " << model();
  const fs::path example = source_dir() / "docs/examples/held_out.toml";
  EXPECT_LT(lines_of(read_file(example)).size(), 10U);
  fs::create_directories(folder_ / "data/models");
  fs::create_directory_symlink(model(), folder_ / "data/models/stories");
  fs::copy(folder_ / "data/mine", folder_ / "data/other");
  const ProgramResult result =
      evaluate(example, {"--set", "model=$DATA/models/stories", "--set", "task.mine/test.dataset=other/test"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(results()["tasks"][0]["name"], "other/test");
  EXPECT_EQ(results()["tasks"][0]["metric"], "bleu");
  EXPECT_EQ(results()["tasks"][0]["lines"], 2);
}

TEST_F(DatasetProgram, SpecBenchIsATableOfCategories) {
  if (!has_model() || !fs::exists(shared_ / "spec_bench")) GTEST_SKIP() << "no " << shared_ / "spec_bench";
  use_data(shared_);
  const ProgramResult result =
      evaluate(write_suite(model(),
                           "{ dataset = \"spec_bench\", categories = [\"translation\", \"summarization\"], limit = 2, "
                           "reference_fields = [\"reference[0]\"], max_source_tokens = 64 }"));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("spec_bench by category"), HasSubstr("geometric mean")));
  const auto tasks = results()["tasks"];
  ASSERT_EQ(tasks.size(), 2U);
  EXPECT_EQ(tasks[0]["metric"], "bleu");
  EXPECT_EQ(tasks[1]["metric"], "bleu");
}

TEST_F(DatasetProgram, ConversationsAreLearnedAndDecoded) {
  if (!has_model()) GTEST_SKIP() << "no " << model();
  const fs::path chat_model = folder_ / "model";
  fs::copy(model(), chat_model);
  fs::permissions(chat_model, fs::perms::owner_all);
  write_text(folder_ / "data/mine/chat.jsonl",
             "{\"messages\": [{\"role\": \"user\", \"content\": \"tell a story\"}, "
             "{\"role\": \"assistant\", \"content\": \"Once upon a time\"}]}\n");
  const std::string suite =
      write_suite(chat_model.string(), "{ dataset = \"mine/chat\", metric = { name = \"chrf\" } }");
  write_text(chat_model / "chat_template.jinja", "\n{{ raise_exception('no stories') }}");
  EXPECT_THAT(refusal_of(evaluate(suite)), AllOf(HasSubstr("chat_template.jinja:2"), HasSubstr("no stories")));
  write_text(chat_model / "chat_template.jinja",
             "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
             "{% if add_generation_prompt %}assistant: {% endif %}");
  const ProgramResult result = evaluate(suite);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(results()["tasks"][0]["metric"], "chrf");
}

class CompareProgram : public testing::Test {
 protected:
  void SetUp() override {
    write("first", 2.0, 30);
    write("second", 1.8, 29);
  }
  void write(const std::string& name, double speedup, double bleu) const {
    evaluate::Results results{.suite = name};
    results.environment["threads"] = name == "first" ? 1 : 2;
    results.tasks = {evaluate::made_task({made_setting("bild.small", "bild", speedup, bleu, "small")})};
    make_directories(root_ / name);
    write_json(root_ / name / "results.json", to_json(results));
  }
  test::ProgramResult compare(const std::vector<std::string>& flags) const {
    return run_program(joined({"compare", root_ / "first", root_ / "second/results.json"}, flags));
  }

  const TemporaryDirectory root_;
};

TEST_F(CompareProgram, ShowsWhatChangedAndExitsWithOneBeyondTheLimits) {
  const auto result = compare({});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("30.00 → 29.00"), HasSubstr("2.00 → 1.80"), HasSubstr("-10.0 %*"),
                                HasSubstr("other environment: threads: 1 → 2")));
  const auto slower = compare({"--fail-on-slower", "5%"});
  EXPECT_EQ(slower.exit_code, 1);
  EXPECT_THAT(slower.err, AllOf(HasSubstr("exceed the limits"), HasSubstr("captions, bild.small: slower by 10.0 %")));
  EXPECT_THAT(compare({"--fail-on-worse", "0.5"}).err, HasSubstr("worse by 1.00 points"));
  EXPECT_EQ(compare({"--fail-on-slower", "15%", "--fail-on-worse", "1.5"}).exit_code, 0);
  EXPECT_THAT(refusal_of(compare({"--fail-on-slower", "0.05"})), HasSubstr("is no percentage such as 3%: 0.05"));
  const std::string first = (root_ / "first").string(), lost = test::draftsmith_binary() + " compare " + first + " ";
  EXPECT_EQ(WEXITSTATUS(std::system((lost + first + " >/dev/full 2>/dev/null").c_str())), 1);
  EXPECT_THAT(refusal_of(run_program({"compare", root_ / "first", root_.path()})), HasSubstr("there are no results"));
}

}  // namespace
}  // namespace draftsmith::test
