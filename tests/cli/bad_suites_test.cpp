// Suites that cannot be right, through the program: each mistake is found before anything runs, with its file and line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/cli/program.h"
#include "tests/support/files.h"

namespace draftsmith::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kBadSuite = R"(model = "DIR"
[[drafter]]
name = "look-up"
lookup = true
[[task]]
name = "val"
source = "DIR/val.src"
references = ["DIR/val.ref"]
[[task]]
name = "test"
source = "DIR/test.src"
references = ["DIR/test.ref"]
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

  std::string replaced(std::string text, const std::string& old, const std::string& by) const {
    for (size_t at = 0; !old.empty() && (at = text.find(old, at)) != std::string::npos; at += by.size()) {
      text.replace(at, old.size(), by);
    }
    return text;
  }
  // Writes the suite with one piece of its text replaced.
  void write_suite(const std::string& old, const std::string& by) const {
    ASSERT_THAT(kBadSuite, HasSubstr(old));
    write_text(suite(), replaced(replaced(kBadSuite, old, by), "DIR", folder_.path().string()));
  }
  std::string suite() const { return (folder_ / "suite.toml").string(); }
  std::string out() const { return (folder_ / "out").string(); }

  // Requires that validate and eval refuse the suite, and that eval writes nothing.
  void expect_refused(const testing::Matcher<const std::string&>& message) const {
    for (const auto& command : std::vector<std::vector<std::string>>{{"validate"}, {"eval", "--out", out()}}) {
      std::vector<std::string> arguments = command;
      arguments.insert(arguments.begin() + 1, suite());
      const ProgramResult result = run_program(arguments);
      EXPECT_EQ(result.exit_code, 2) << command.front();
      EXPECT_THAT(result.err, message) << command.front();
    }
    EXPECT_FALSE(fs::exists(out()));
  }

  const TemporaryDirectory folder_;
};

TEST_F(BadSuite, AnEmptyGrid) {
  write_suite("window = [1, 2]", "window = []");
  expect_refused(AllOf(HasSubstr("suite.toml:17"), HasSubstr("the list is empty")));
}

TEST_F(BadSuite, AMissingModel) {
  write_suite("model = \"DIR\"", "model = \"no/model\"");
  expect_refused(AllOf(HasSubstr("suite.toml:1:"), HasSubstr("no/model (not there)")));
}

TEST_F(BadSuite, ADirectoryWithoutAModel) {
  const ProgramResult result = run_program({"eval", suite(), "--out", out()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("config.json"));
  EXPECT_FALSE(fs::exists(out()));
}

TEST_F(BadSuite, FewerReferencesThanLines) {
  write_text(folder_ / "test.ref", "e f\n");
  expect_refused(AllOf(HasSubstr("test.ref"), HasSubstr("2 lines, as in"), HasSubstr("found:    1 line")));
}

TEST_F(BadSuite, AMetricThatTheTaskCannotHave) {
  write_suite("name = \"val\"", "name = \"val\"\nids = true\nmetric = { name = \"chrf\" }");
  expect_refused(AllOf(HasSubstr("suite.toml:8: task[0].metric"), HasSubstr("ids have no characters")));
  write_suite("references = [\"DIR/val.ref\"]", "metric = { name = \"rouge\" }");
  expect_refused(AllOf(HasSubstr("suite.toml:5: task[0]"), HasSubstr("a task needs references to be scored")));
  write_suite("name = \"val\"", "name = \"val\"\nmetric = { name = \"bleuu\" }");
  expect_refused(AllOf(HasSubstr("suite.toml:7"), HasSubstr("did you mean 'bleu'?")));
}

TEST_F(BadSuite, TheSameFileForValidationAndTest) {
  write_suite("DIR/test", "DIR/val");
  expect_refused(AllOf(HasSubstr("suite.toml:9: task[1]"), HasSubstr("chosen are reported on")));
  fs::create_hard_link(folder_ / "val.src", folder_ / "again.src");
  write_suite("DIR/test.src", "DIR/again.src");
  write_text(folder_ / "test.ref", "e f\ng\nh\n");
  expect_refused(HasSubstr("chosen are reported on"));
}

TEST_F(BadSuite, ResultsOfAnotherVersionAreNeitherReadNorReplaced) {
  fs::create_directories(out());
  const std::string later = "{\"version\": 99, \"suite\": \"s\", \"environment\": {}, \"tasks\": []}";
  write_text(folder_ / "out/results.json", later);
  for (const auto& command : std::vector<std::vector<std::string>>{
           {"report", out()}, {"compare", out(), out()}, {"eval", suite(), "--out", out()}}) {
    const ProgramResult result = run_program(command);
    EXPECT_EQ(result.exit_code, 2) << command.front();
    EXPECT_THAT(result.err, AllOf(HasSubstr("out/results.json"), HasSubstr("found:    99"))) << command.front();
  }
  EXPECT_EQ(read_file(folder_ / "out/results.json"), later);
}

}  // namespace
}  // namespace draftsmith::test
