#include "data/synthetic/synthetic.h"

#include <set>

#include <gtest/gtest.h>

#include "base/files.h"
#include "data/text/readers.h"

namespace draftsmith::data {
namespace {

SyntheticOptions small() {
  return {.train = 500, .valid = 50, .test = 50, .vocabulary = 200};
}

class Synthetic : public testing::Test {
 protected:
  std::vector<std::string> lines(const SyntheticOptions& options, const std::string& file) const {
    write_synthetic(options, directory_ / "language");
    return read_lines(directory_ / "language" / file);
  }
  const TemporaryDirectory directory_;
};

// The pairs of a seed never change: trained models and published numbers depend on them. In the second one the topic
// and an ambiguous noun decide gender and endings across relative clauses.
TEST_F(Synthetic, TheTextOfASeedStays) {
  const auto sources = lines(small(), "valid.src");
  ASSERT_EQ(sources.size(), 50U);
  EXPECT_EQ(sources[0], "buma un ruket ke stutiil soliil .");
  EXPECT_EQ(sources[1], "sil buva fuvonis ke sil limar stuil gelo un venis ke ta limaren sugued .");
  EXPECT_EQ(read_lines(directory_ / "language" / "valid.tgt")[1],
            "su sa wéša héhela čo žüqåylu jéwåkwu ne dan wéšan žéšökwovan čo čöšem čåhüčitu .");
  std::string all;
  for (const char* file : {"train.src", "train.tgt", "valid.src", "valid.tgt", "test.src", "test.tgt"}) {
    all += read_file(directory_ / "language" / file);
  }
  EXPECT_EQ(sha256(all), "bb9037613072c04a3f9fc03d9a0e6234b5c9a91c1352a59bedff5dbd020dbc4c");
  SyntheticOptions other = small();
  other.seed = 2;
  EXPECT_NE(lines(other, "valid.src"), sources);
}

TEST_F(Synthetic, HeldOutSentencesOccurNowhereElse) {
  const auto train = lines(small(), "train.src");
  std::set<std::string> held_out;
  for (const char* file : {"valid.src", "test.src"}) {
    for (const std::string& source : read_lines(directory_ / "language" / file)) {
      EXPECT_TRUE(held_out.insert(source).second) << source;
    }
  }
  for (const std::string& source : train) EXPECT_FALSE(held_out.contains(source));
}

}  // namespace
}  // namespace draftsmith::data
