// The log of a run and its event files: known checksums, reading by TensorBoard itself, and resuming without steps
// twice.
#include "train/training_log.h"

#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "tests/support/files.h"
#include "tests/train/fixtures.h"
#include "train/tensorboard.h"

namespace draftsmith::train {
namespace {

TEST(TensorBoard, ChecksumsAreCastagnolis) {
  // RFC 3720, appendix B.4.
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

void write_steps(const std::filesystem::path& folder, int64_t last_step, int64_t from, int64_t to) {
  EventWriter writer(folder, last_step);
  for (int64_t step = from; step <= to; ++step) {
    const std::vector<Scalar> scalars{{"train/loss", 1.5 / static_cast<double>(step)}, {"train/lr", 0.25}};
    writer.add(step, scalars);
  }
}

TEST(TensorBoard, ReadsWhatWasWrittenAndNoStepTwice) {
  if (!peers_python()) GTEST_SKIP() << "no Python with tensorboard (.venv-peers or DRAFTSMITH_PEERS_PYTHON)";
  const TemporaryDirectory folder;
  write_steps(folder.path(), 0, 1, 300);
  const std::filesystem::path file = EventWriter(folder.path(), 300).file();
  {
    std::ofstream torn(file, std::ios::binary | std::ios::app);
    torn << "half a rec";
  }
  write_steps(folder.path(), 6, 7, 8);
  const auto read = nlohmann::json::parse(run_reference({"scalars", folder.path().string()}));
  const nlohmann::json& losses = read.at("train/loss");  // [[step, value], ...]
  ASSERT_EQ(losses.size(), 8u);
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_EQ(losses[i][0], i + 1);
    EXPECT_NEAR(losses[i][1].get<double>(), 1.5 / static_cast<double>(i + 1), 1e-7);
  }
  EXPECT_NEAR(read.at("train/lr").at(7).at(1).get<double>(), 0.25, 1e-7);
}

// A run was killed between a validation and its checkpoint, so it validates again.
TEST(TensorBoard, ResumedFilesHoldNoValidationTwice) {
  const TemporaryDirectory folder;
  write_steps(folder.path(), 0, 1, 2);
  const std::filesystem::path file = EventWriter(folder.path(), 2).file();
  const auto trained = std::filesystem::file_size(file);
  EventWriter(folder.path(), 2).add(2, std::vector<Scalar>{{"validation/loss", 0.5}});
  const auto both = std::filesystem::file_size(file);
  EXPECT_GT(both, trained);
  EventWriter(folder.path(), 2, true);
  EXPECT_EQ(std::filesystem::file_size(file), both);
  EventWriter(folder.path(), 2, false);
  EXPECT_EQ(std::filesystem::file_size(file), trained);
}

// What is beyond the resumed step is dropped; killed between a validation that was due and the next checkpoint, a run
// validates once more.
TEST(TrainingLog, HoldsNoStepAndNoValidationTwice) {
  const TemporaryDirectory folder;
  const std::string steps = "{\"step\":2}\n{\"step\":3,\"loss\":1}\n";
  const std::string validated = steps + "{\"step\":3,\"validation\":{\"loss\":1}}\n";
  const auto file = write_text(folder / "metrics.jsonl", validated + "{\"step\":4}\n{\"ste");
  truncate_metrics(file, 3);
  EXPECT_EQ(read_file(file), validated);
  truncate_metrics(file, 3, /*validated=*/false);
  EXPECT_EQ(read_file(file), steps);
}

}  // namespace
}  // namespace draftsmith::train
