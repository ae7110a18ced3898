// Router data: written and read back, and files that cannot be trusted.
#include "data/router/router_data.h"

#include <functional>
#include <limits>

#include <gmock/gmock.h>

#include "base/files.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::data {
namespace {

RouterDataInfo some_info() {
  return {.top_k = 2, .vocabulary = 10, .examples = 3, .drafter_hash = "abc", .provenance = {{"window", "16"}}};
}

RouterRows some_rows() {
  return {.entropy = {0.5F, 1.5F, 0.0F},
          .probabilities = {0.8F, 0.1F, 0.4F, 0.3F, 1.0F, 0.0F},
          .ids = {3, 9, 0, 5, 7, -1},
          .disagreement = {0.25F, 1.0F, 0.0F},
          .rejected = {0, 1, 0},
          .examples = {0, 0, 2}};
}

TEST(RouterData, ComesBackAsItWasWritten) {
  const TemporaryDirectory root;
  RouterDataInfo info = some_info();
  info.provenance["no\nte"] = "\x07";
  write_router_data(root / "r.h5", info, some_rows());
  const RouterData data(root / "r.h5");
  EXPECT_EQ(data.info().positions, 3);
  EXPECT_EQ(data.info().top_k, 2);
  EXPECT_EQ(data.info().examples, 3);
  EXPECT_EQ(data.info().drafter_hash, "abc");
  EXPECT_EQ(data.info().provenance.at("window"), "16");
  EXPECT_EQ(data.rows().ids, some_rows().ids);
  EXPECT_EQ(data.rows().probabilities, some_rows().probabilities);
  EXPECT_EQ(data.rows().disagreement, some_rows().disagreement);
  EXPECT_EQ(data.rows().examples, some_rows().examples);
  EXPECT_TRUE(has_hdf5_format(root / "r.h5", kRouterDataFormat));
  EXPECT_THAT(describe_router_data(data), HasSubstr("rejected 0.3333"));
  EXPECT_THAT(describe_router_data(data), HasSubstr("no\\x0ate: \\x07")) << "text of the file is printed escaped";
}

TEST(RouterData, ValuesOutOfRangeAreRefusedByNameAndPlace) {
  struct Damage {
    std::function<void(RouterRows&)> change;
    std::string said;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<Damage> damages{{[&](RouterRows& r) { r.entropy[1] = nan; }, "value 1 of /router/entropy"},
                                    {[](RouterRows& r) { r.entropy[1] = 3; }, "/router/entropy"},  // ln 10 = 2.3
                                    {[](RouterRows& r) { r.probabilities[3] = 1.5; }, "value 3 of /router/prob"},
                                    {[](RouterRows& r) { r.ids[0] = 10; }, "value 0 of /router/ids"},
                                    {[](RouterRows& r) { r.disagreement[2] = -0.1F; }, "/router/disagreement"},
                                    {[](RouterRows& r) { r.rejected[2] = 2; }, "/router/rejected"},
                                    {[](RouterRows& r) { r.examples[2] = 3; }, "/router/examples"}};
  for (const Damage& damage : damages) {
    const TemporaryDirectory root;
    RouterRows rows = some_rows();
    damage.change(rows);
    write_router_data(root / "r.h5", some_info(), rows);
    EXPECT_THAT(error_of([&] { RouterData{root / "r.h5"}; }), HasSubstr(damage.said));
  }
}

TEST(RouterData, OtherFilesAreRefused) {
  const TemporaryDirectory root;
  write_text(root / "text.h5", "no file of this kind");
  EXPECT_NE(error_of([&] { RouterData{root / "text.h5"}; }), "no error");
  EXPECT_FALSE(has_hdf5_format(root / "text.h5", kRouterDataFormat));
  write_router_data(root / "r.h5", some_info(), some_rows());
  const std::string whole = read_file(root / "r.h5");
  write_text(root / "half.h5", whole.substr(0, whole.size() / 2));
  EXPECT_NE(error_of([&] { RouterData{root / "half.h5"}; }), "no error");
}

}  // namespace
}  // namespace draftsmith::data
