// Copies of model directories: what is taken along, and what is not.
#include "model/files/copy_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "model/files/model_hash.h"
#include "tests/model/files/checkpoint_files.h"
#include "tests/model/models/tandem_passes.h"
#include "tests/support/models.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;

class CopyModel : public testing::Test {
 protected:
  CopyModel() { save_model(from_, *varied_model(tiny_llama(3), 3, at::kFloat)); }
  void add(const std::string& file) const {
    make_directories((from_ / file).parent_path());
    write_file_atomic(from_ / file, "x");
  }

  TemporaryDirectory root_;
  fs::path from_ = root_ / "from";
  fs::path to_ = root_ / "to";
};

TEST_F(CopyModel, IsTheSameModelWithWhatBelongsToIt) {
  add("draftsmith/exits/exits.json");
  add("draftsmith/notes.json");
  copy_model(from_, to_);
  EXPECT_EQ(model_hash(to_), model_hash(from_));
  EXPECT_TRUE(fs::exists(to_ / "draftsmith" / "exits" / "exits.json"));
  EXPECT_TRUE(fs::exists(to_ / "draftsmith" / "notes.json"));
}

TEST_F(CopyModel, LeavesBehindTheModelCard) {
  add("README.md");
  copy_model(from_, to_);
  EXPECT_FALSE(fs::exists(to_ / "README.md"));
}

TEST_F(CopyModel, LeavesBehindHiddenFilesFoldersAndLinksThatLeadNowhere) {
  add(".git/HEAD");
  add("onnx/model.onnx");
  fs::create_symlink(from_ / "gone", from_ / "weights.bin");
  copy_model(from_, to_);
  EXPECT_EQ(model_hash(to_), model_hash(from_));
  for (const char* file : {".git", "onnx", "weights.bin"}) EXPECT_FALSE(fs::exists(to_ / file)) << file;
}

TEST_F(CopyModel, CanBeWrittenWhereTheModelCannot) {
  add("draftsmith/exits/exits.json");
  for (const auto& entry : fs::recursive_directory_iterator(from_)) {
    fs::permissions(entry, fs::perms::owner_write, fs::perm_options::remove);
  }
  copy_model(from_, to_);
  const auto writable = [](const fs::path& path) {
    return (fs::status(path).permissions() & fs::perms::owner_write) != fs::perms::none;
  };
  for (const auto& entry : fs::recursive_directory_iterator(to_)) EXPECT_TRUE(writable(entry)) << entry.path();
}

}  // namespace
}  // namespace draftsmith::model
