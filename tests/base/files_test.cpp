// Files that are whole or absent, their hashes, and hashes that are remembered.
#include "base/files.h"

#include <chrono>
#include <csignal>

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/errors.h"

namespace draftsmith {
namespace {

namespace fs = std::filesystem;

size_t entries(const fs::path& directory) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

TEST(AtomicFile, AppearsOnCommitAndReplacesWhatLayThere) {
  const TemporaryDirectory directory;
  const fs::path file = directory / "a.txt";
  write_file_atomic(file, "old");
  {
    AtomicFile out(file);
    out.write("new ");
    out.write("text");
    EXPECT_EQ(read_file(file), "old");
    out.commit();
  }
  EXPECT_EQ(read_file(file), "new text");
  EXPECT_EQ(entries(directory.path()), 1u);
}

// RLIMIT_FSIZE stands in for a full disk: write() fails half-way with an error instead of taking the bytes.
TEST(AtomicFile, AFailedWriteNamesFileAndBytesAndLeavesNothing) {
  const TemporaryDirectory directory;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{10'000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = error_of<RunError>([&] {
    AtomicFile out(directory / "large.bin");
    out.write(std::string(8'000, 'x'));
    out.write(std::string(8'000, 'x'));
  });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, HasSubstr("large.bin: writing failed after 10000 bytes, with 6000 more to write"));
  EXPECT_EQ(entries(directory.path()), 0u);
}

// As root a rename would replace the device for everyone.
TEST(AtomicPath, DevicesPipesAndLinksIntoProcAreNeverReplaced) {
  const TemporaryDirectory directory;
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  fs::create_symlink("/dev/null", directory / "link");
  fs::create_symlink("/proc/self/status", directory / "like_stdout");
  for (const char* name : {"pipe", "link", "like_stdout"}) {
    EXPECT_THROW(AtomicPath(directory / name), UserError) << name;
  }
  EXPECT_THROW(AtomicFile("/dev/null"), UserError);
  EXPECT_EQ(entries(directory.path()), 3u);
  fs::create_symlink("nowhere", directory / "dangling");
  write_file_atomic(directory / "dangling", "a link to nothing may become a file");
}

TEST(ReadFile, ErrorsSayWhatIsWrong) {
  const TemporaryDirectory directory;
  write_file_atomic(directory / "ten", "0123456789");
  EXPECT_EQ(read_file(directory / "ten", 10), "0123456789");
  const auto read_error = [](const fs::path& file, uint64_t limit) {
    return error_of([&] { read_file(file, limit); });
  };
  EXPECT_THAT(read_error(directory / "ten", 9),
              HasSubstr("too large\n  expected: at most 9 bytes\n  found:    10 bytes"));
  EXPECT_THAT(read_error(directory.path(), 9), HasSubstr("is a directory"));
  EXPECT_THAT(read_error(directory / "none", 9), HasSubstr("No such file"));
}

TEST(Directories, AreCreatedWithTheirParents) {
  const TemporaryDirectory directory;
  make_directories(directory / "a/b/c");
  make_directories(directory / "a/b/c");
  EXPECT_TRUE(fs::is_directory(directory / "a/b/c"));
  write_file_atomic(directory / "file", "");
  EXPECT_THROW(make_directories(directory / "file"), UserError);
  EXPECT_THROW(make_directories(directory / "file/x"), UserError);
}

TEST(Links, AreReplacedButFilesAreNot) {
  const TemporaryDirectory directory;
  fs::create_directory(directory / "one");
  fs::create_directory(directory / "two");
  replace_link(directory / "current", "one");
  EXPECT_EQ(fs::read_symlink(directory / "current"), "one");
  replace_link(directory / "current", directory / "two");
  EXPECT_EQ(fs::read_symlink(directory / "current"), "two") << "a link by name alone moves with its directory";
  EXPECT_THROW(replace_link(directory / "one", "two"), RunError);
  EXPECT_EQ(entries(directory.path()), 3u);
}

TEST(HumanBytes, KeepsThreeDigitsOrSo) {
  EXPECT_EQ(human_bytes(0), "0 bytes");
  EXPECT_EQ(human_bytes(999), "999 bytes");
  EXPECT_EQ(human_bytes(1'000), "1.0 kB");
  EXPECT_EQ(human_bytes(999'999), "1.0 MB");
  EXPECT_EQ(human_bytes(27'900'000), "27.9 MB");
  EXPECT_EQ(human_bytes(std::numeric_limits<uint64_t>::max()), "18.4 EB");
}

// Vectors of FIPS 180-4 and of NIST's example collection.
TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 pieces;
  pieces.update("a");
  pieces.update("bc");
  EXPECT_EQ(pieces.hex_digest(), sha256("abc"));
}

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

}  // namespace
}  // namespace draftsmith
