#include "base/files.h"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/errors.h"

namespace draftsmith {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

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

TEST(AtomicFile, LeavesNothingBehindWithoutCommit) {
  const TemporaryDirectory directory;
  {
    AtomicFile out(directory / "a.txt");
    out.write("half");
    EXPECT_EQ(entries(directory.path()), 1u);
  }
  EXPECT_EQ(entries(directory.path()), 0u);
}

TEST(AtomicFile, MissingDirectoriesAreTheUsersToCorrect) {
  EXPECT_THROW(AtomicFile("/nonexistent/a.txt"), UserError);
  EXPECT_THROW(write_file_atomic("/nonexistent/a.txt", ""), UserError);
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

// A process of the same number, killed earlier, leaves its names behind: only random bits tell ours from its own.
TEST(AtomicPath, TemporaryNamesHoldMoreThanTheProcessNumber) {
  const TemporaryDirectory directory;
  const AtomicPath path(directory / "a");
  const std::string start = ".a.tmp-" + std::to_string(getpid()) + "-";
  const std::string name = path.temporary().filename().string();
  ASSERT_TRUE(name.starts_with(start)) << name;
  EXPECT_GT(name.find('-', start.size()) - start.size(), 8u) << name << ": few random bits";
}

TEST(AtomicPath, ServesWritersThatOpenByName) {
  const TemporaryDirectory directory;
  {
    AtomicPath path(directory / "corpus.h5");
    write_file_atomic(path.temporary(), "content");
    path.commit();
  }
  EXPECT_EQ(read_file(directory / "corpus.h5"), "content");
  {
    const AtomicPath path(directory / "model");
    fs::create_directory(path.temporary());
    write_file_atomic(path.temporary() / "x", "y");
  }
  EXPECT_EQ(entries(directory.path()), 1u);
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

TEST(Directories, AreCreatedRenamedAndNeverOverwritten) {
  const TemporaryDirectory directory;
  make_directories(directory / "a/b/c");
  make_directories(directory / "a/b/c");
  EXPECT_TRUE(fs::is_directory(directory / "a/b/c"));
  rename_directory(directory / "a", directory / "z");
  EXPECT_TRUE(fs::is_directory(directory / "z/b/c"));
  fs::create_directory(directory / "a");
  EXPECT_THROW(rename_directory(directory / "a", directory / "z"), RunError);
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
  replace_link(directory / "current", "two");
  EXPECT_EQ(fs::read_symlink(directory / "current"), "two");
  replace_link(directory / "current", directory / "one");
  EXPECT_EQ(fs::read_symlink(directory / "current"), "one") << "a link by name alone moves with its directory";
  EXPECT_THROW(replace_link(directory / "one", "two"), RunError);
  EXPECT_EQ(entries(directory.path()), 3u);
}

TEST(DiskFree, AnswersForPathsThatDoNotExistYet) {
  EXPECT_GT(disk_free("/tmp"), 0u);
  EXPECT_GT(disk_free("/tmp/not/there/yet"), 0u);
}

TEST(HumanBytes, KeepsThreeDigitsOrSo) {
  EXPECT_EQ(human_bytes(0), "0 bytes");
  EXPECT_EQ(human_bytes(999), "999 bytes");
  EXPECT_EQ(human_bytes(1'000), "1.0 kB");
  EXPECT_EQ(human_bytes(999'999), "1.0 MB");
  EXPECT_EQ(human_bytes(27'900'000), "27.9 MB");
  EXPECT_EQ(human_bytes(std::numeric_limits<uint64_t>::max()), "18.4 EB");
}

TEST(TemporaryDirectory, RemovesItself) {
  fs::path path;
  {
    const TemporaryDirectory directory;
    path = directory.path();
    write_file_atomic(directory / "x", "y");
  }
  EXPECT_FALSE(fs::exists(path));
}

// Vectors of FIPS 180-4 and of NIST's example collection.
TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesOfAnySizeGiveTheDigestOfTheWhole) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  for (size_t length = 0; length < text.size(); length += 13) {
    const std::string whole = sha256(text.substr(0, length));
    for (const size_t piece : {1u, 55u, 64u, 65u}) {
      Sha256 hash;
      for (size_t at = 0; at < length; at += piece) hash.update(text.substr(at, std::min(piece, length - at)));
      EXPECT_EQ(hash.hex_digest(), whole) << length << " in pieces of " << piece;
    }
  }
}

TEST(Sha256, OfAFileIsThatOfItsContent) {
  const TemporaryDirectory directory;
  const std::string content(2'500'000, 'q');
  write_file_atomic(directory / "f", content);
  EXPECT_EQ(sha256_file(directory / "f"), sha256(content));
  EXPECT_THROW(sha256_file(directory / "g"), UserError);
}

}  // namespace
}  // namespace draftsmith
