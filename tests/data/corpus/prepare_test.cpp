#include "data/corpus/prepare.h"

#include <algorithm>
#include <csignal>
#include <iterator>

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "base/files.h"
#include "base/signals.h"
#include "data/text/readers.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/data/small_tokenizer.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::data {
namespace {

class Prepare : public testing::Test {
 protected:
  Prepare() : tokenizer_(small_tokenizer(directory_ / "spiece.model")) {}

  PrepareReport prepare(const std::string& source, const std::string& target, const PrepareOptions& options = {},
                        const TextPolicies& policies = {}) {
    const auto stream =
        open_parallel(write_text(directory_ / "a.src", source), write_text(directory_ / "a.tgt", target), policies);
    return prepare_corpus(*stream, *tokenizer_, options, out_);
  }

  std::vector<int32_t> with_eos(const std::string& text) const {
    std::vector<int32_t> ids = tokenizer_->encode(text);
    ids.push_back(tokenizer_->eos());
    return ids;
  }

  TemporaryDirectory directory_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::filesystem::path out_ = directory_ / "out.h5";
};

TEST_F(Prepare, RowsAreTheTextsIdsWithEos) {
  const PrepareReport report = prepare("the cat\na dog\n", "a cat sees\nthe bird\n");
  const Corpus corpus(out_);
  ASSERT_EQ(corpus.size(), 2);
  EXPECT_THAT(corpus.source(0), testing::ElementsAreArray(with_eos("the cat")));
  EXPECT_THAT(corpus.target(1), testing::ElementsAreArray(with_eos("the bird")));
  EXPECT_EQ(report.written, 2);
  EXPECT_EQ(report.source_tokens, corpus.info().source_tokens);
  EXPECT_TRUE(report.counts.empty());
}

TEST_F(Prepare, SourcesHaveAPrefixAndASuffixThatStaysWhenTheyAreCut) {
  const auto ids = [&](const std::string& text) { return tokenizer_->encode(text); };
  prepare("the cat sees\n", "a dog\n", {.prefix = "a dog ", .suffix = "the", .prompts = true});
  std::vector<int32_t> expected = ids("a dog the cat sees");
  const auto end = ids("the");
  const auto text_tokens = std::ssize(expected);
  expected.insert(expected.end(), end.begin(), end.end());
  EXPECT_THAT(Corpus(out_).source(0), testing::ElementsAreArray(expected));

  std::filesystem::remove(out_);
  const int64_t limit = std::ssize(expected) - 2;
  prepare("the cat sees\n", "a dog\n",
          {.max_source = limit, .too_long = "truncate", .prefix = "a dog ", .suffix = "the", .prompts = true});
  expected.erase(expected.begin() + text_tokens - 2, expected.begin() + text_tokens);
  EXPECT_THAT(Corpus(out_).source(0), testing::ElementsAreArray(expected));

  std::filesystem::remove(out_);
  prepare("the cat\n", "a dog\n", {.suffix = "the"});
  EXPECT_EQ(Corpus(out_).source(0).back(), tokenizer_->eos());
  const PrepareOptions no_room{.max_source = 1, .too_long = "truncate", .suffix = "the"};
  EXPECT_THAT(error_of([&] { prepare("the cat\n", "a dog\n", no_room); }), HasSubstr("no room"));
}

TEST_F(Prepare, TheFirstTokensOfPlainTextBecomeItsPrompt) {
  const std::string text = "the cat sees a dog";
  const auto stream = open_plain_text(write_text(directory_ / "a.txt", text + "\nthe\n"), "", {});
  const PrepareReport report = prepare_corpus(*stream, *tokenizer_, {.prompt_tokens = 3}, out_);
  const Corpus corpus(out_);
  ASSERT_EQ(corpus.size(), 1);
  std::vector<int32_t> whole(corpus.source(0).begin(), corpus.source(0).end());
  EXPECT_EQ(whole.size(), 3);
  whole.insert(whole.end(), corpus.target(0).begin(), corpus.target(0).end());
  EXPECT_EQ(whole, with_eos(text));
  EXPECT_EQ(report.counts.at("dropped: no longer than the prompt"), 1);
  EXPECT_TRUE(continues_prompts(corpus.info()));
  EXPECT_THAT(error_of([&] { prepare("the cat\n", "a dog\n", {.prompt_tokens = 3}); }), HasSubstr("prompts = true"));
  const auto again = open_plain_text(directory_ / "a.txt", "", {});
  EXPECT_THAT(error_of([&] { prepare_corpus(*again, *tokenizer_, {.prefix = "the "}, out_); }),
              HasSubstr("are for sources"));
  const auto shorter = [&] { prepare_corpus(*stream, *tokenizer_, {.max_source = 2, .prompt_tokens = 3}, out_); };
  EXPECT_THAT(error_of(shorter), HasSubstr("3 tokens or more")) << "prompts would lose tokens before their ends";
}

TEST_F(Prepare, LongTextsAreSplitIntoWindowsAndOnlyTheLastEndsInEos) {
  const std::string text = "the cat sees a dog the bird sees the cat";
  const std::vector<int32_t> whole = with_eos(text);
  const auto stream = open_plain_text(write_text(directory_ / "a.txt", text + "\nthe\n"), "", {});
  const int64_t limit = std::ssize(whole) - 1;  // one token too many: two halves, not a window with EOS alone
  const PrepareReport report = prepare_corpus(*stream, *tokenizer_, {.max_target = limit, .too_long = "split"}, out_);
  const Corpus corpus(out_);
  ASSERT_EQ(corpus.size(), 3);
  std::vector<int32_t> joined(corpus.target(0).begin(), corpus.target(0).end());
  EXPECT_NE(joined.back(), tokenizer_->eos());
  joined.insert(joined.end(), corpus.target(1).begin(), corpus.target(1).end());
  EXPECT_EQ(joined, whole);
  EXPECT_LE(corpus.target(1).size() - corpus.target(0).size(), 1U);
  EXPECT_THAT(corpus.target(2), testing::ElementsAreArray(with_eos("the")));
  for (int64_t i = 0; i < 3; ++i) EXPECT_TRUE(corpus.source(i).empty());
  EXPECT_THAT(report.counts, ElementsAre(testing::Pair("split texts", 1), testing::Pair("windows of split texts", 2)));
  EXPECT_EQ(corpus.info().provenance.at("count: windows of split texts"), "2");
  EXPECT_EQ(corpus.info().provenance.at("too_long"), "split");
}

TEST_F(Prepare, WindowsContinueTheTokensBeforeThem) {
  const std::string text = "the cat sees a dog the bird sees the cat";
  const std::vector<int32_t> whole = with_eos(text);
  const auto stream = open_plain_text(write_text(directory_ / "a.txt", text + "\n"), "", {});
  prepare_corpus(*stream, *tokenizer_, {.max_target = 4, .too_long = "split", .prompt_tokens = 3}, out_);
  const Corpus corpus(out_);
  ASSERT_EQ(corpus.size(), (std::ssize(whole) - 3 + 3) / 4);
  auto next = whole.begin() + 3;
  for (int64_t i = 0; i < corpus.size(); ++i) {
    EXPECT_LE(corpus.target(i).size(), 4U);
    EXPECT_TRUE(std::equal(corpus.source(i).begin(), corpus.source(i).end(), next - 3, next)) << i;
    const auto end = next + std::ssize(corpus.target(i));
    EXPECT_TRUE(std::equal(corpus.target(i).begin(), corpus.target(i).end(), next, end)) << i;
    next = end;
  }
  EXPECT_EQ(next, whole.end());
}

TEST_F(Prepare, OrderDoesNotDependOnThreads) {
  std::string source, target;
  for (int i = 0; i < 9000; ++i) {  // more than four chunks
    source += std::string("the ") + (i % 3 == 0 ? "cat" : "dog") + (i % 7 == 0 ? " sees" : "") + "\n";
    target += std::string(static_cast<size_t>(i % 5 + 1), 'a') + "\n";
  }
  prepare(source, target, {.threads = 1});
  const Corpus one(out_);
  prepare(source, target, {.threads = 4});
  const Corpus four(out_);
  ASSERT_EQ(one.size(), 9000);
  ASSERT_EQ(four.size(), 9000);
  for (int64_t i = 0; i < 9000; ++i) {
    ASSERT_TRUE(std::ranges::equal(one.source(i), four.source(i)));
    ASSERT_TRUE(std::ranges::equal(one.target(i), four.target(i)));
  }
}

TEST_F(Prepare, TruncationKeepsEos) {
  const auto report = prepare("the cat sees the dog\n", "the bird sings\n",
                              {.max_source = 4, .max_target = 100, .too_long = "truncate"});
  EXPECT_EQ(report.counts, (TextCounts{{"truncated sources", 1}}));
  const Corpus corpus(out_);
  const std::vector<int32_t> whole = with_eos("the cat sees the dog");
  EXPECT_THAT(corpus.source(0), ElementsAre(whole[0], whole[1], whole[2], tokenizer_->eos()));
  EXPECT_THAT(corpus.target(0), testing::ElementsAreArray(with_eos("the bird sings")));
}

TEST_F(Prepare, TheFirstBadLineIsReportedWhateverIsFoundFirst) {
  std::string source;
  for (int i = 0; i < 5000; ++i) source += i == 10 ? "the cat sees the tall dog\n" : "a cat\n";
  std::string target(10000, '\n');
  for (size_t i = 0; i < 5000; ++i) target[2 * i] = 'a';
  source += "\xFF\n";  // line 5001, found while line 11 still waits for its tokens
  target += "a\n";
  EXPECT_THAT(error_of([&] { prepare(source, target, {.max_source = 5}); }), HasSubstr("a.src:11"));
}

TEST_F(Prepare, EmptyReferencesBesideOthersArePassedOverAndCounted) {
  write_text(directory_ / "a.jsonl", "{\"d\": \"the cat\", \"s1\": \" \", \"s2\": \"the bird\", \"s3\": \"a dog\"}\n");
  const TextInput input = {.jsonl = directory_ / "a.jsonl", .source_field = "d", .target_fields = {"s1", "s2", "s3"}};
  const auto first = prepare_corpus(*open_text(input, {}), *tokenizer_, {}, out_);
  EXPECT_EQ(first.counts.at("references not used"), 2);
  ASSERT_EQ(Corpus(out_).size(), 1);
  EXPECT_THAT(Corpus(out_).target(0), testing::ElementsAreArray(with_eos("the bird")));
  EXPECT_EQ(Corpus(out_).info().provenance.at("count: references not used"), "2");
}

TEST_F(Prepare, AStopLeavesNoCorpus) {
  const SignalWatch watch;
  std::string lines;
  for (int i = 0; i < 50'000; ++i) lines += "the cat\n";
  const auto stream =
      open_parallel(write_text(directory_ / "a.src", lines), write_text(directory_ / "a.tgt", lines), {});
  int64_t chunks = 0;
  const auto stop = [&](int64_t) {
    if (++chunks == 2) request_stop(SIGTERM);
  };
  EXPECT_THROW(prepare_corpus(*stream, *tokenizer_, {.threads = 2}, out_, stop), Interrupted);
  EXPECT_EQ(chunks, 2);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 3) << "two texts, a tokenizer";
}

// Counting lines and hashing would take the text away.
TEST_F(Prepare, PipesAreRefused) {
  ASSERT_EQ(mkfifo((directory_ / "pipe").c_str(), 0600), 0);
  const auto file = write_text(directory_ / "a.txt", "the cat\n");
  const auto refused = AllOf(HasSubstr("pipe"), HasSubstr("regular file"), HasSubstr("to a file first"));
  EXPECT_THAT(error_of([&] { open_text({.jsonl = directory_ / "pipe"}, {}); }), refused);
  EXPECT_THAT(error_of([&] { open_text({.text = directory_ / "pipe"}, {}); }), refused);
  EXPECT_THAT(error_of([&] { open_text({.source = file, .target = directory_ / "pipe"}, {}); }), refused);
}

TEST_F(Prepare, InputMustBeOneKind) {
  EXPECT_THAT(error_of([] { open_text({}, {}); }), HasSubstr("no input"));
  EXPECT_THAT(error_of([] { open_text({.source = "a"}, {}); }), HasSubstr("half of a pair"));
  EXPECT_THAT(error_of([] { open_text({.jsonl = "a", .text = "b"}, {}); }), HasSubstr("more than one kind"));
}

}  // namespace
}  // namespace draftsmith::data
