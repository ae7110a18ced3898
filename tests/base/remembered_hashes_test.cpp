// Hashes of files that are remembered by size and time of change.
#include <chrono>
#include <fstream>

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/sha256.h"

namespace draftsmith {
namespace {

namespace fs = std::filesystem;

class RememberedHashesTest : public testing::Test {
 protected:
  // Writes a file that changed long ago, so that its hash is remembered.
  void write_old(const std::string& content, std::chrono::minutes age) {
    write_file_atomic(file_, content);
    fs::last_write_time(file_, fs::file_time_type::clock::now() - age);
    time_ = fs::last_write_time(file_);
  }
  // Changes the content and neither size nor time.
  void change_unseen(const std::string& content) {
    write_file_atomic(file_, content);
    fs::last_write_time(file_, time_);
  }

  const TemporaryDirectory folder_;
  const fs::path file_ = folder_ / "input.txt";
  const fs::path store_ = folder_ / "hashes.json";
  fs::file_time_type time_;
};

TEST_F(RememberedHashesTest, ReadsAFileOnceUntilSizeOrTimeChange) {
  RememberedHashes hashes;
  write_old("one", std::chrono::minutes(5));
  EXPECT_EQ(hashes.of(file_), sha256("one"));
  change_unseen("two");
  EXPECT_EQ(hashes.of(file_), sha256("one"));
  write_old("two", std::chrono::minutes(4));
  EXPECT_EQ(hashes.of(file_), sha256("two"));
  change_unseen("three");
  EXPECT_EQ(hashes.of(file_), sha256("three"));
}

TEST_F(RememberedHashesTest, DoesNotRememberWhatChangedAMomentAgo) {
  RememberedHashes hashes;
  write_file_atomic(file_, "one");
  time_ = fs::last_write_time(file_);
  EXPECT_EQ(hashes.of(file_), sha256("one"));
  change_unseen("two");
  EXPECT_EQ(hashes.of(file_), sha256("two"));
}

TEST_F(RememberedHashesTest, ServesTheNextProgram) {
  write_old("one", std::chrono::minutes(5));
  RememberedHashes before;
  before.of(file_);
  before.save(store_);
  change_unseen("two");
  RememberedHashes after;
  after.load(store_);
  EXPECT_EQ(after.of(file_), sha256("one"));
}

TEST_F(RememberedHashesTest, ReadsFilesAgainWhereTheStoreIsAbsentOrDamaged) {
  write_old("one", std::chrono::minutes(5));
  for (const std::string content : {"", "[1, 2", "[]", "{\"x\": 3}", "{\"x\": {\"size\": -1}}"}) {
    write_file_atomic(store_, content);
    RememberedHashes hashes;
    hashes.load(store_);
    EXPECT_EQ(hashes.of(file_), sha256("one")) << content;
  }
  RememberedHashes hashes;
  hashes.load(folder_ / "nothing.json");
  EXPECT_EQ(hashes.of(file_), sha256("one"));
}

TEST_F(RememberedHashesTest, NamesAFileThatIsNotThere) {
  RememberedHashes hashes;
  EXPECT_THROW(hashes.of(folder_ / "nothing"), UserError);
}

}  // namespace
}  // namespace draftsmith
