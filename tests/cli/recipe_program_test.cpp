// The whole way through the program: a tiny recipe from text to measured drafters and exits, and what a user does with
// what it made.
#include <cstdlib>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "tests/cli/program.h"
#include "tests/support/files.h"
#include "tests/support/paths.h"

namespace draftsmith::test {
namespace {

namespace fs = std::filesystem;

const std::string kRecipe = std::string("name = \"tiny\"\n") + kTinyLanguage + R"(
[defaults.corpus]
tokenizer = "@tokenizer/spiece.model"
[corpus]
kind = "corpus"
source = "@language/train.src"
target = "@language/train.tgt"
[ngrams]
kind = "ngram"
corpus = "@corpus/corpus.h5"
[validation]
kind = "corpus"
source = "@language/valid.src"
target = "@language/valid.tgt"
[defaults.train]
tokenizer = "@tokenizer/spiece.model"
validation_corpus = "@validation/corpus.h5"
training = { length = "30 steps", batches = { token_budget = 400 }, validation = { every = "15 steps" } }
[target]
kind = "train"
corpus = "@corpus/corpus.h5"
architecture = { width = 32, heads = 2, head_width = 16, ff_width = 48, encoder_layers = 1, decoder_layers = 4, embedding_std = 0.1 }
[outputs]
kind = "teacher-outputs"
model = "@target/model"
corpus = "@corpus/corpus.h5"
limit = 40
max_new_tokens = 12
shard_examples = 16
[aligned]
kind = "train"
corpus = "@outputs/corpus.h5"
teacher = "@target/model"
architecture = { width = 16, heads = 1, head_width = 16, ff_width = 24, encoder_layers = 1, decoder_layers = 1, embedding_std = 0.1 }
[features]
kind = "train"
corpus = "@outputs/corpus.h5"
features = { target = "@target/model", vocabulary_from = "@outputs/corpus.h5" }
training = { length = "10 steps", objective = { name = "distill", distill = { lambda = 0 } } }
[early-exit]
kind = "train"
corpus = "@corpus/corpus.h5"
from = "@target/model"
exits = { loss = "early_exit_average", layers = [1] }
[calm]
kind = "train"
corpus = "@corpus/corpus.h5"
from = "@target/model"
exits = { loss = "calm_weighted" }
[heads]
kind = "heads"
model = "@target/model"
tokenizer = "@tokenizer/spiece.model"
corpus = "@corpus/corpus.h5"
layers = [2, 3]
form = "low_rank"
rank = 4
training = { length = "10 steps", optimizer = { lr = 1e-3 } }
[evaluation]
kind = "evaluate"
model = "@target/model"
max_new_tokens = 12
repetitions = 1
warmup = 1
forced_lines = 2
resamples = 20
batch_size = 2
dtype = "fp64"
drafter = [
  { name = "aligned", model = "@aligned/model" },
  { name = "table", ngram = "@ngrams/ngram.h5" },
  { name = "copies", lookup = true },
  { name = "features", features = "@features/model" },
  { name = "early", model = "@early-exit/model" },
  { name = "calm", model = "@calm/model" },
  { name = "exit1", exit = 1 },
]
match_rates = [{ exits = "@heads/model/draftsmith/exits", prompts = 3 }]
task = { name = "test", source = "@language/test.src", references = ["@language/test.tgt"] }
run = [
  { method = "assisted", drafter = ["aligned", "table", "copies"] },
  { method = "speculative", drafter = ["features"], temperature = [0, 1] },
  { method = "early-exit", model = "early", fallback = [0.2, 0.9] },
  { method = "assisted", model = "early", drafter = ["exit1"] },
  { method = "calm", model = "calm", exit_threshold = [0.5, 0.9] },
  { method = "ppd", exits = "@heads/model/draftsmith/exits", candidates = [1, 3] },
]
)";

class RecipeProgram : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryDirectory>();
    write_file_atomic(*folder_ / "tiny.toml", kRecipe);
    first_ = train();
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static ProgramResult train(const std::vector<std::string>& more = {}) {
    return run_program(joined({"train", *folder_ / "tiny.toml", "--work", work(), "--threads", "1"}, more));
  }
  static std::string work(const std::string& inside = "") { return (*folder_ / "work") / inside; }

  static inline std::unique_ptr<TemporaryDirectory> folder_;
  static inline ProgramResult first_;
};

TEST_F(RecipeProgram, TrainsAlignsAndEvaluates) {
  ASSERT_EQ(first_.exit_code, 0) << first_.err;
  EXPECT_THAT(first_.out, HasSubstr("results.json"));
  const auto results = load_json(work("evaluation/results.json"));
  const auto& task = results.at("tasks").at(0);
  EXPECT_EQ(task.at("name"), "test");
  EXPECT_TRUE(task.at("baseline").at("quality").contains("bleu"));
  EXPECT_EQ(task.at("runs").at(0).at("repeats"), "greedy");
  EXPECT_EQ(task.at("runs").at(1).at("method"), "assisted");
  EXPECT_TRUE(fs::exists(work("evaluation/report.html")));
  EXPECT_EQ(lines_of(read_file(work("evaluation/hyp/test.greedy.txt"))).size(), 6u);
}

TEST_F(RecipeProgram, MeasuresMethodsInsideTheModel) {
  ASSERT_EQ(first_.exit_code, 0) << first_.err;
  EXPECT_TRUE(fs::exists(work("heads/model/draftsmith/exits/exits.json")));
  EXPECT_THAT(first_.out, testing::AllOf(HasSubstr("layers a token"), HasSubstr("match rates")));
  EXPECT_THAT(read_file(work("evaluation/report.html")), HasSubstr("Inside the model"));
  int64_t lossless = 0;
  const auto results = load_json(work("evaluation/results.json"));
  for (const auto& run : results.at("tasks").at(0).at("runs")) {
    if (!run.contains("inside")) continue;
    EXPECT_EQ(run.at("inside").at("layers"), 4) << run.at("name");
    if (run.at("exactness").at("lossless") == false) continue;
    EXPECT_EQ(run.at("exactness").at("differing_lines"), 0) << run.at("name");
    ++lossless;
  }
  EXPECT_EQ(lossless, 3);
}

TEST_F(RecipeProgram, AFinishedEvaluationBecomesAPage) {
  const std::string page = *folder_ / "page.md";
  const ProgramResult made = run_program({"report", work(), "--markdown", page, "--html", *folder_ / "page.html"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const std::string text = read_file(page);
  EXPECT_THAT(text, HasSubstr("```\ndraftsmith train "));
  EXPECT_THAT(text, AllOf(HasSubstr("\n| greedy | "), HasSubstr("\nThe evaluation took ")));
  write_file_atomic(page, "gone\n<!-- by hand 1\n<!-- end -->\ngone\n<!-- by hand 2\n<!-- end -->\n");
  ASSERT_EQ(run_program({"report", work(), "--markdown", page}).exit_code, 0);
  EXPECT_THAT(read_file(page), AllOf(HasSubstr("\n<!-- by hand 1\n"), Not(HasSubstr("gone"))));
  EXPECT_THAT(read_file(page), HasSubstr("(page.tables.txt)"));
  EXPECT_EQ(read_file(*folder_ / "page.tables.txt"), run_program({"report", work()}).out);
  EXPECT_EQ(read_file(*folder_ / "page.html"), read_file(work("evaluation/report.html")));
  EXPECT_THAT(refusal_of(run_program({"report", work(), "--markdown", "/dev/full"})), HasSubstr("is a device"));
  EXPECT_THAT(run_program({"report", work("evaluation")}).out, HasSubstr("tokens/s)\n"));
  EXPECT_EQ(run_program({"report", work("target")}).exit_code, 2);
}

TEST_F(RecipeProgram, ASecondRunDoesNothing) {
  const auto before = fs::last_write_time(work("target/DONE"));
  const ProgramResult again = train();
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, testing::AllOf(testing::Not(HasSubstr("target finished")), HasSubstr("target was finished")));
  EXPECT_THAT(again.out, HasSubstr("speedup"));  // the results that were found before
  EXPECT_EQ(fs::last_write_time(work("target/DONE")), before);
  EXPECT_THAT(train({"--set", "target.trainig.length='1 steps'"}).err, HasSubstr("training"));
}

TEST_F(RecipeProgram, DraftersThatAreNoModelsAreChecked) {
  const auto refusal = [](const std::string& drafter, const std::string& method) {
    return refusal_of(run_program(
        {"generate", "--model", work("target/model"), "--drafter", drafter, "--method", method}, "a text\n"));
  };
  EXPECT_THAT(refusal("lookup", "bild"), HasSubstr("drafter lookup, window fallback"));
  EXPECT_THAT(refusal("ngram:" + work("corpus/corpus.h5"), "assisted"), HasSubstr("not an n-gram table"));
}

TEST_F(RecipeProgram, InspectTellsAndVerifyAgrees) {
  for (const char* what :
       {"", "target", "target/model", "corpus/corpus.h5", "ngrams", "ngrams/ngram.h5", "evaluation/results.json"}) {
    const ProgramResult told = run_here({"inspect", work(what)});
    EXPECT_EQ(told.exit_code, 0) << what << told.err;
    EXPECT_FALSE(told.out.empty());
    EXPECT_EQ(run_here({"verify", work(what)}).exit_code, 0) << what;
  }
  const std::string corpus = work("corpus/corpus.h5"), tokenizer = work("tokenizer/spiece.model");
  EXPECT_THAT(run_here({"inspect", corpus, "--tokenizer", tokenizer, "--examples", "2"}).out,
              AllOf(HasSubstr("example 1\n  source: "), Not(HasSubstr("example 2"))));
}

TEST_F(RecipeProgram, SigtermSavesAndExitsWith143) {
  const std::string log = (*folder_ / "log").string();
  // The link moves to the new run's directory, which has no DONE; what it logs says that training is under way.
  const std::string command = fmt::format(
      "'{0}' train '{1}' --work '{2}' --threads 1 --until target --set target.training.length='1000000 steps' "
      "--set target.training.validation.every='500000 steps' 2>'{3}' >&2 & child=$!; "
      "while kill -0 $child && ! {{ test ! -e '{2}target/DONE' && test -s '{2}target/metrics.jsonl'; }}; "
      "do sleep 0.05; done; kill -TERM $child; wait $child",
      draftsmith::test::draftsmith_binary(), (*folder_ / "tiny.toml").string(), work(), log);
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 143) << read_file(log);
  EXPECT_TRUE(fs::exists(work("target/checkpoints/last"))) << read_file(log);
  EXPECT_FALSE(fs::exists(work("target/DONE")));
  EXPECT_EQ(train({"--until", "target"}).exit_code, 0);  // back to the finished one
}

}  // namespace
}  // namespace draftsmith::test
