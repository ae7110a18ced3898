// A small recipe with every stage that several processes share, and the directories of runs of it.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "tests/cli/job.h"
#include "tests/support/files.h"

namespace draftsmith::test {

inline const std::string kJobRecipe = std::string("name = \"tiny\"\n") + kTinyLanguage + R"(
[corpus]
kind = "corpus"
tokenizer = "@tokenizer/spiece.model"
source = "@language/train.src"
target = "@language/train.tgt"
[defaults.train]
tokenizer = "@tokenizer/spiece.model"
corpus = "@corpus/corpus.h5"
training = { length = "30 steps", accumulate = 3, batches = { token_budget = 200 }, checkpoint_every = "10 steps", log_every = 1, tensorboard = false }
[target]
kind = "train"
architecture = { width = 32, heads = 2, head_width = 16, ff_width = 48, encoder_layers = 2, decoder_layers = 2, embedding_std = 0.1 }
[outputs]
kind = "teacher-outputs"
model = "@target/model"
corpus = "@corpus/corpus.h5"
limit = 100
max_new_tokens = 12
shard_examples = 16
[logits]
kind = "teacher-logits"
model = "@target/model"
corpus = "@corpus/corpus.h5"
k = 4
shard_examples = 64
[drafter]
kind = "train"
architecture = { width = 16, heads = 1, head_width = 16, ff_width = 24, encoder_layers = 1, decoder_layers = 1, embedding_std = 0.1 }
[positions]
kind = "router-data"
model = "@target/model"
drafter = "@drafter/model"
corpus = "@corpus/corpus.h5"
limit = 60
max_new_tokens = 12
[evaluation]
kind = "evaluate"
model = "@target/model"
max_new_tokens = 12
repetitions = 1
warmup = 1
forced_lines = 5
resamples = 20
batch_size = 2
[[evaluation.drafter]]
name = "drafter"
model = "@drafter/model"
[[evaluation.task]]
name = "test"
source = "@language/test.src"
references = ["@language/test.tgt"]
[[evaluation.run]]
method = "assisted"
drafter = ["drafter"]
[[evaluation.run]]
method = "speculative"
drafter = ["drafter"]
temperature = [0.8]
)";

class JobProgram : public testing::Test {
 protected:
  void SetUp() override { write_file_atomic(folder_ / "tiny.toml", kJobRecipe); }

  std::string work(const std::string& name) const { return folder_ / name; }
  std::vector<std::string> arguments(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> line{"train", folder_ / "tiny.toml", "--work", work(name)};
    line.insert(line.end(), more.begin(), more.end());
    return line;
  }
  // Runs the recipe with one process.
  void run_alone(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> line = arguments(name, more);
    line.insert(line.end(), {"--threads", "1"});
    const ProgramResult alone = run_program(line);
    ASSERT_EQ(alone.exit_code, 0) << alone.err;
  }

  // Waits until the target's training has logged so many steps.
  void await_steps(const std::string& name, int64_t steps) const {
    const std::filesystem::path log = work(name) + "/target/metrics.jsonl";
    for (int i = 0; i < 3000; ++i) {
      if (std::filesystem::exists(log) && std::ssize(lines_of(read_file(log))) >= steps) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    FAIL() << "no training in " << log;
  }

  static double last_loss(const std::string& directory) {
    return nlohmann::json::parse(lines_of(read_file(directory + "/target/metrics.jsonl")).back()).at("loss");
  }

  // A training that takes long enough to be disturbed.
  static std::vector<std::string> long_target() {
    return {"--until", "target", "--set", "target.training.length=400 steps"};
  }

  TemporaryDirectory folder_;
};

}  // namespace draftsmith::test
