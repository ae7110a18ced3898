#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "data/datasets/datasets.h"

namespace draftsmith::data {
namespace {

using testing::HasSubstr;

class DataPath : public testing::Test {
 protected:
  DataPath() { setenv(kDataVariable, folder_.path().c_str(), 1); }
  ~DataPath() override { unsetenv(kDataVariable); }

  const TemporaryDirectory folder_;
};

TEST_F(DataPath, OnlyABeginningOfDollarDataIsTheDataFolder) {
  const std::string folder = folder_.path().string();
  EXPECT_EQ(real_path("$DATA/a/b.de"), folder + "/a/b.de");
  EXPECT_EQ(real_path("$DATA//etc"), folder + "//etc");  // stays in the folder
  for (const char* other : {"a/b", "/a/b", "./$DATA/a", "$DATABASE/a", "$DATA", ""}) EXPECT_EQ(real_path(other), other);
}

TEST_F(DataPath, FilesOfTheFolderAreWrittenPortably) {
  EXPECT_EQ(portable_path(folder_ / "a/b.de"), "$DATA/a/b.de");
  EXPECT_EQ(real_path(portable_path(folder_ / "a/b.de")), (folder_ / "a/b.de").string());
  EXPECT_EQ(portable_path("/elsewhere/a"), "/elsewhere/a");
}

TEST_F(DataPath, AMissingPathSaysWhatItIsRelativeTo) {
  EXPECT_EQ(missing_path("$DATA/a", "suite.toml:3").where, "suite.toml:3");
  EXPECT_EQ(missing_path("$DATA/a", "").found, (folder_ / "a").string() + " (not there)");
  EXPECT_THAT(missing_path("$DATA/a", "").hint, HasSubstr("or correct the path"));
  EXPECT_THAT(missing_path("a", "").hint, HasSubstr("relative to the current directory"));
  EXPECT_EQ(missing_path("/a", "").hint, "");
  setenv(kDataVariable, (folder_ / "nowhere").c_str(), 1);
  EXPECT_THAT(missing_path("$DATA/a", "").hint, HasSubstr("nowhere (not there); set DRAFTSMITH_DATA"));
}

}  // namespace
}  // namespace draftsmith::data
