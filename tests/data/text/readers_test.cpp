#include "data/text/readers.h"

#include <iostream>
#include <sstream>

#include <gmock/gmock.h>

#include "base/files.h"
#include "base/utf8.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::data {
namespace {

class Readers : public testing::Test {
 protected:
  std::unique_ptr<ExampleStream> parallel(std::string_view source, std::string_view target,
                                          TextPolicies policies = {}) {
    return open_parallel(write_text(directory_ / "a.src", source), write_text(directory_ / "a.tgt", target), policies);
  }
  std::unique_ptr<ExampleStream> jsonl(std::string_view text, JsonFields fields, TextPolicies policies = {}) {
    return open_jsonl(write_text(directory_ / "a.jsonl", text), fields, policies);
  }
  std::unique_ptr<ExampleStream> plain(std::string_view text, const std::string& separator,
                                       TextPolicies policies = {}) {
    return open_plain_text(write_text(directory_ / "a.txt", text), separator, policies);
  }
  TemporaryDirectory directory_;
};

std::vector<std::string> sources(ExampleStream& stream) {
  std::vector<std::string> list;
  for (const Example& example : read_all(stream)) list.push_back(example.source);
  return list;
}

std::vector<std::string> first_targets(ExampleStream& stream) {
  std::vector<std::string> list;
  for (const Example& example : read_all(stream)) list.push_back(example.targets.at(0));
  return list;
}

TEST_F(Readers, ParallelLinesArePairedInOrder) {
  const auto stream = parallel("eins\nzwei\n", "one\ntwo\n");
  const std::vector<Example> examples = read_all(*stream);
  ASSERT_EQ(examples.size(), 2U);
  EXPECT_EQ(examples[1].source, "zwei");
  EXPECT_THAT(examples[1].targets, ElementsAre("two"));
  EXPECT_THAT(examples[1].where, HasSubstr("a.src:2"));
  EXPECT_TRUE(stream->counts().empty());
}

TEST_F(Readers, CrLfByteOrderMarkAndMissingFinalNewlineAreTaken) {
  const auto stream = parallel(
      "\xEF\xBB\xBF"
      "eins\r\nzwei",
      "one\ntwo\n");
  EXPECT_THAT(sources(*stream), ElementsAre("eins", "zwei"));
}

TEST_F(Readers, UnequalNumbersOfLinesAreAnError) {
  EXPECT_THAT(error_of([&] { read_all(*parallel("1\n2\n3\n", "1\n2\n")); }), HasSubstr("no line 3 in one of them"));
}

TEST_F(Readers, InvalidUtf8IsAnErrorThatNamesFileLineAndByte) {
  const auto stream = parallel("gut\nschlecht \xFF!\n", "good\nbad\n");
  EXPECT_THAT(error_of([&] { read_all(*stream); }), AllOf(HasSubstr("a.src:2"), HasSubstr("0xFF at byte 10")));
  const auto target = parallel("eins\n", "\xC3(\n");
  EXPECT_THAT(error_of([&] { read_all(*target); }), AllOf(HasSubstr("a.tgt:1"), HasSubstr("byte 1 ")));
}

TEST_F(Readers, InvalidUtf8CanBeDropped) {
  const auto dropped = parallel("a\nb\xFF\nc\n", "1\n2\n3\n", {.invalid_utf8 = "drop"});
  EXPECT_THAT(sources(*dropped), ElementsAre("a", "c"));
  EXPECT_EQ(dropped->counts().at("dropped: invalid UTF-8"), 1);
}

TEST_F(Readers, EmptyLinesFollowTheirPolicy) {
  const std::string_view source = "a\n\xE3\x80\x80 \nc\nd\n";  // line 2: an ideographic space and a blank
  const std::string_view target = "1\n2\n\n4\n";
  EXPECT_THAT(error_of([&] { read_all(*parallel(source, target)); }), AllOf(HasSubstr("a.src:2"), HasSubstr("empty")));
  const auto dropped = parallel(source, target, {.empty = "drop"});
  EXPECT_THAT(sources(*dropped), ElementsAre("a", "d"));
  EXPECT_EQ(dropped->counts().at("dropped: empty"), 2);
  const auto kept = parallel(source, target, {.empty = "keep"});
  EXPECT_EQ(sources(*kept).size(), 4U);
  EXPECT_EQ(kept->counts().at("kept: empty"), 2);
}

TEST_F(Readers, FilesThatCannotBeReadAreErrors) {
  EXPECT_THROW(open_parallel(directory_ / "absent", directory_ / "absent2", {}), UserError);
  EXPECT_THAT(error_of([&] { read_lines(directory_.path()); }), HasSubstr("directory"));
}

// A container's user may not open /dev/stdin, which another user made.
TEST(StandardInput, IsReadWithoutOpeningAFile) {
  std::istringstream text("ein Hund\r\nzwei");
  std::streambuf* const input = std::cin.rdbuf(text.rdbuf());
  LineReader lines = open_lines("-");
  std::string first, second, third, fourth;
  EXPECT_TRUE(lines.next(first) && lines.next(second));
  EXPECT_EQ(lines.where(), "standard input:2");
  EXPECT_FALSE(lines.next(third));
  std::cin.rdbuf(input);
  std::cin.clear();
  ASSERT_NE(std::freopen("/", "r", stdin), nullptr);
  EXPECT_THAT(error_of([&] { open_lines("-").next(fourth); }), HasSubstr("reading failed")) << "a directory";
  std::cin.clear();
  EXPECT_THAT((std::vector{first, second}), ElementsAre("ein Hund", "zwei"));
}

TEST_F(Readers, JsonlProblemsNameTheLine) {
  const JsonFields fields = {.source = "document", .targets = {"summary"}};
  const auto message = [&](std::string_view bad) {
    return error_of(
        [&] { read_all(*jsonl("{\"document\": \"a\", \"summary\": \"b\"}\n" + std::string(bad) + "\n", fields)); });
  };
  EXPECT_THAT(message("{\"documents\": \"a\", \"summary\": \"b\"}"),
              AllOf(HasSubstr("a.jsonl:2"), HasSubstr("document"), HasSubstr("did you mean")));
  EXPECT_THAT(message("{\"document\": 3, \"summary\": \"b\"}"), AllOf(HasSubstr("a.jsonl:2"), HasSubstr("number")));
  EXPECT_THAT(message("{\"document\": [\"a\", 3], \"summary\": \"b\"}"), HasSubstr("list of strings"));
  EXPECT_THAT(message("[1]"), AllOf(HasSubstr("a.jsonl:2"), HasSubstr("array")));
  EXPECT_THAT(message("{\"document\": "), HasSubstr("a.jsonl:2"));
  EXPECT_THAT(message(""), HasSubstr("blank line"));
  EXPECT_THAT(message("{\"document\": \"\", \"summary\": \"b\"}"), HasSubstr("empty source"));
  EXPECT_THAT(message("{\"document\": \"\xFF\", \"summary\": \"b\"}"), HasSubstr("invalid UTF-8"));
}

TEST_F(Readers, JsonlPoliciesDropAndCount) {
  const auto stream =
      jsonl("{\"d\": \"\xFF\", \"s\": \"b\"}\n\n{\"d\": \"\", \"s\": \"b\"}\n{\"d\": \"a\", \"s\": \"b\"}\n",
            {.source = "d", .targets = {"s"}}, {.invalid_utf8 = "drop", .empty = "drop"});
  EXPECT_THAT(sources(*stream), ElementsAre("a"));
  EXPECT_EQ(stream->counts().at("dropped: invalid UTF-8"), 1);
  EXPECT_EQ(stream->counts().at("dropped: empty"), 2);
}

TEST_F(Readers, PlainTextDocumentsAreSplitAtTheSeparator) {
  const std::string end = "<|endoftext|>";
  EXPECT_THAT(first_targets(*plain(end + "\na\nb\n" + end + "\nc\n" + end + "\n", end)), ElementsAre("a\nb", "c"));
  EXPECT_THAT(first_targets(*plain("a\n" + end + "\nb", end)), ElementsAre("a", "b"));
  EXPECT_THAT(error_of([&] { read_all(*plain("a\n" + end + "\n" + end + "\nb\n", end)); }), HasSubstr("a.txt:3"));
}

}  // namespace
}  // namespace draftsmith::data
