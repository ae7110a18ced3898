#include "model/files/model_hash.h"

#include <chrono>
#include <filesystem>

#include <gtest/gtest.h>

#include "base/files.h"
#include "model/files/checkpoint.h"
#include "tests/support/models.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;

void save(const fs::path& directory, uint64_t seed) {
  const TransformerConfig config =
      t5_config({.vocabulary = 11, .width = 4, .heads = 1, .head_width = 4, .ff_width = 4, .decoder_layers = 1});
  save_model(directory, TransformerModel(config, seed));
}

TEST(ModelHash, IsOfConfigurationAndWeightsWhereverTheyLie) {
  const TemporaryDirectory folder;
  save(folder / "a", 1);
  save(folder / "b", 2);
  const std::string hash = model_hash(folder / "a");
  EXPECT_EQ(hash.size(), 64u);
  EXPECT_NE(model_hash(folder / "b"), hash);
  fs::rename(folder / "a", folder / "moved");
  write_file_atomic(folder / "moved" / "generation_config.json", "{}");
  write_file_atomic(folder / "moved" / "README.md", "a card");
  EXPECT_EQ(model_hash(folder / "moved"), hash);
  write_file_atomic(folder / "moved" / "config.json", read_file(folder / "moved" / "config.json") + " ");
  EXPECT_NE(model_hash(folder / "moved"), hash);
}

// Seen by a change that leaves size and time as they were.
TEST(ModelHash, FilesThatStayAreReadOnce) {
  const TemporaryDirectory folder;
  save(folder / "a", 1);
  const fs::path weights = folder / "a" / "model.safetensors";
  const auto change = [&] {
    std::string bytes = read_file(weights);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write_file_atomic(weights, bytes);
  };
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(weights, long_ago);
  const std::string hash = model_hash(folder / "a");
  change();
  EXPECT_NE(model_hash(folder / "a"), hash);  // by its time
  change();
  EXPECT_EQ(model_hash(folder / "a"), hash);  // within one tick, perhaps: what is new is not remembered
  fs::last_write_time(weights, long_ago);
  model_hash(folder / "a");
  change();
  fs::last_write_time(weights, long_ago);
  EXPECT_EQ(model_hash(folder / "a"), hash);
}

TEST(ModelHash, OfWhatIsNoModelIsAnError) {
  const TemporaryDirectory folder;
  EXPECT_THROW(model_hash(folder / "absent"), UserError);
  save(folder / "a", 1);
  fs::remove(folder / "a" / "model.safetensors");
  EXPECT_THROW(model_hash(folder / "a"), UserError);
}

}  // namespace
}  // namespace draftsmith::model
