// The whole way from text to a measured suite of methods inside the model, with models too small to be good.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "tests/cli/program.h"

namespace draftsmith::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kInsideRecipe = std::string("name = \"tiny_inside\"\n") + kTinyLanguage + R"(
[corpus]
kind = "corpus"
tokenizer = "@tokenizer/spiece.model"
source = "@language/train.src"
target = "@language/train.tgt"
[defaults.train]
tokenizer = "@tokenizer/spiece.model"
corpus = "@corpus/corpus.h5"
training = { length = "20 steps", batches = { token_budget = 400 }, tensorboard = false }
[target]
kind = "train"
architecture = { width = 32, heads = 2, head_width = 16, ff_width = 48, encoder_layers = 1, decoder_layers = 4, embedding_std = 0.1 }
[early-exit]
kind = "train"
from = "@target/model"
exits = { loss = "early_exit_average", layers = [1] }
[calm]
kind = "train"
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
training = { length = "10 steps", optimizer = { lr = 1e-3 }, tensorboard = false }
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
  { name = "early", model = "@early-exit/model" },
  { name = "calm", model = "@calm/model" },
  { name = "exit1", exit = 1 },
]
match_rates = [{ exits = "@heads/model/draftsmith/exits", prompts = 3 }]
[[evaluation.task]]
name = "test"
source = "@language/test.src"
references = ["@language/test.tgt"]
[[evaluation.run]]
method = "early-exit"
model = "early"
fallback = [0.2, 0.9]
[[evaluation.run]]
method = "assisted"
model = "early"
drafter = ["exit1"]
[[evaluation.run]]
method = "calm"
model = "calm"
exit_threshold = [0.5, 0.9]
[[evaluation.run]]
method = "ppd"
exits = "@heads/model/draftsmith/exits"
candidates = [1, 3]
)";

TEST(InsideRecipe, TrainsExitsAndHeadsAndMeasuresThem) {
  const TemporaryDirectory folder;
  write_file_atomic(folder / "tiny.toml", kInsideRecipe);
  const std::string work = (folder / "work").string();
  const ProgramResult result = run_program({"train", folder / "tiny.toml", "--work", work, "--threads", "1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(fs::exists(folder / "work/heads/model/draftsmith/exits/exits.json"));
  EXPECT_THAT(result.out, HasSubstr("layers a token"));
  EXPECT_THAT(result.out, HasSubstr("match rates"));
  const fs::path out = folder / "work/evaluation";
  EXPECT_TRUE(fs::exists(out / "match_rates.csv"));
  const auto results = load_json(out / "results.json");
  int64_t lossless = 0;
  for (const auto& run : results.at("tasks").at(0).at("runs")) {
    if (run.at("method") == "greedy") continue;
    EXPECT_EQ(run.at("inside").at("layers"), 4) << run.at("name");
    if (run.at("exactness").at("lossless") == false) continue;
    EXPECT_EQ(run.at("exactness").at("differing_lines"), 0) << run.at("name");
    ++lossless;
  }
  EXPECT_EQ(lossless, 3);
  EXPECT_THAT(read_file(out / "report.html"), HasSubstr("Inside the model"));
}

}  // namespace
}  // namespace draftsmith::test
