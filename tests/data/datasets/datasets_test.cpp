#include "data/datasets/datasets.h"

#include <cstdlib>

#include <gmock/gmock.h>

#include "base/files.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::data {
namespace {

// A data folder for the length of a test.
class Datasets : public testing::Test {
 protected:
  Datasets() { setenv(kDataVariable, folder().c_str(), 1); }
  ~Datasets() override { unsetenv(kDataVariable); }

  std::filesystem::path folder() const { return folder_ / "data"; }
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder() / name).parent_path());
    write_text(folder() / name, text);
  }
  void write_captions() {
    write("captions/test.de", "eins\nzwei\n");
    write("captions/test.en", "one\ntwo\n");
  }
  // Returns the suite's text with its tasks filled in, or the problems.
  std::string filled(const std::string& suite) {
    toml::table table = parse_toml(suite, "suite.toml");
    Problems problems;
    fill_in_dataset_tasks(table, problems);
    if (!problems.empty()) return text_of(problems.list());
    std::ostringstream text;
    text << table;
    return text.str();
  }

  TemporaryDirectory folder_;
};

TEST_F(Datasets, FilesOfAFolderAreNamedByFolderAndStem) {
  write_captions();
  write("captions/alone.de", "nur deutsch\n");
  write("dialogsum/dialogsum.dev.jsonl", "{\"dialogue\": \"a\", \"summary\": \"b\"}\n");
  write("stories/tales.txt", "once\n");
  write("stories/_about.txt", "ignored\n");
  write("models/small/merges.txt", "ignored\n");
  EXPECT_THAT(filled("task = { dataset = \"none\" }"),
              HasSubstr("one of captions/test, dialogsum/dev, stories/tales\n"));
}

TEST_F(Datasets, AFolderWithOneDataSetNamesIt) {
  write("stories/tales.txt", "once\n");
  EXPECT_THAT(filled("task = { dataset = \"stories\" }"), HasSubstr("$DATA/stories/tales.txt"));
  write("stories/more.txt", "once\n");
  EXPECT_THAT(filled("task = { dataset = \"stories\" }"), HasSubstr("one of stories/more"));
}

TEST_F(Datasets, UnknownNamesSuggestTheNearest) {
  write_captions();
  EXPECT_THAT(filled("task = { dataset = \"captions/tset\" }"), HasSubstr("did you mean captions/test?"));
  const std::string task = "task = { dataset = \"captions/test\", direction = \"de-fr\" }";
  EXPECT_THAT(filled(task), AllOf(HasSubstr("suite.toml:1"), HasSubstr("de-en")));
  EXPECT_THAT(filled("task = { dataset = \"captions/test\" }"), HasSubstr("parallel text needs a direction"));
}

TEST_F(Datasets, ATaskGetsNameFilesAndMetric) {
  write_captions();
  const std::string text = filled("task = { dataset = \"captions/test\", direction = \"de-en\", limit = 5 }");
  EXPECT_THAT(text, AllOf(HasSubstr("name = 'captions/test'"), HasSubstr("source = '$DATA/captions/test.de'"),
                          HasSubstr("captions/test.en'"), HasSubstr("name = 'bleu'"), HasSubstr("limit = 5")));
}

TEST_F(Datasets, KeysOfTheTaskWin) {
  write_captions();
  const std::string text = filled(
      "[[task]]\nname = \"mine\"\ndataset = \"captions/test\"\ndirection = \"en-de\"\nmetric = { name = \"chrf\" }\n");
  EXPECT_THAT(text, AllOf(HasSubstr("'mine'"), HasSubstr("'chrf'"), testing::Not(HasSubstr("bleu"))));
  EXPECT_THAT(filled("task = { dataset = \"captions/test\", source = \"x\" }"),
              HasSubstr("`dataset` and `source` both say where the text comes from"));
}

TEST_F(Datasets, SummariesAreScoredByRougeAndPromptsNotAtAll) {
  write("sums/dev.jsonl", "{\"dialogue\": \"a\", \"summary1\": \"b\", \"summary2\": \"c\"}\n");
  EXPECT_THAT(filled("task = { dataset = \"sums/dev\" }"),
              AllOf(HasSubstr("'rouge'"), HasSubstr("'summary1'"), HasSubstr("'summary2'")));
  write("prompts/test.jsonl", "{\"text\": \"a\"}\n");
  EXPECT_THAT(filled("task = { dataset = \"prompts\" }"),
              AllOf(HasSubstr("'none'"), HasSubstr("source_field = 'text'")));
  write("odd/test.jsonl", "{\"left\": \"a\", \"right\": \"b\"}\n");
  EXPECT_THAT(filled("task = { dataset = \"odd\" }"), AllOf(HasSubstr("fields left, right"), HasSubstr("`jsonl`")));
}

TEST_F(Datasets, CategoriesBecomeTasks) {
  write("spec_bench/question.jsonl",
        "{\"category\": \"math\", \"turns\": [\"first\", \"second\"]}\n"
        "{\"category\": \"translation\", \"turns\": [\"first\"], \"reference\": [\"answer\"]}\n");
  const std::string all = filled("task = { dataset = \"spec_bench\" }");
  EXPECT_THAT(all,
              AllOf(HasSubstr("name = 'spec_bench'"), HasSubstr("source_field = 'turns[0]'"), HasSubstr("'none'")));
  const std::string two = filled(
      "task = { dataset = \"spec_bench\", categories = [\"qa\", \"math\"], reference_fields = [\"reference[0]\"] }");
  EXPECT_THAT(two, AllOf(HasSubstr("'spec_bench.qa'"), HasSubstr("'spec_bench.math'"), HasSubstr("[ 'qa' ]"),
                         HasSubstr("'reference[0]'"), HasSubstr("'bleu'")));
}

TEST_F(Datasets, CorporaHaveTheSameNames) {
  write_captions();
  toml::table corpus = parse_toml("dataset = \"captions/test\"\ndirection = \"en-de\"\n", "recipe.toml");
  Problems problems;
  fill_in_dataset_corpus(corpus, problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(corpus["source"].value_or(std::string()), "$DATA/captions/test.en");
  EXPECT_EQ(corpus["target"].value_or(std::string()), "$DATA/captions/test.de");
  fill_in_dataset_corpus(corpus, problems);
  EXPECT_THAT(text_of(problems.list()), AllOf(HasSubstr("`dataset` and `source`"), HasSubstr("one of them")));
  write("sums/dev.jsonl", "{\"dialogue\": \"a\", \"summary\": \"b\"}\n");
  toml::table summaries = parse_toml("dataset = \"sums\"\nsource_field = \"topic\"\n", "recipe.toml");
  Problems none;
  fill_in_dataset_corpus(summaries, none);
  EXPECT_EQ(summaries["source_field"].value_or(std::string()), "topic") << "keys of the corpus win";
  EXPECT_EQ(summaries["target_fields"][0].value_or(std::string()), "summary");
}

TEST_F(Datasets, OnlyABeginningOfDollarDataIsTheDataFolder) {
  EXPECT_EQ(real_path("$DATA/a/b.de"), folder().string() + "/a/b.de");
  EXPECT_EQ(real_path("$DATA//etc"), folder().string() + "//etc");  // stays in the folder
  for (const char* other : {"a/b", "/a/b", "./$DATA/a", "$DATABASE/a", "$DATA", ""}) EXPECT_EQ(real_path(other), other);
}

}  // namespace
}  // namespace draftsmith::data
