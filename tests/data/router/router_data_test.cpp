// Router data: written, joined and read back, and files that cannot be trusted.
#include "data/router/router_data.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "data/hdf5/hdf5.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::data {
namespace {

using testing::HasSubstr;

RouterDataInfo some_info() {
  return {.top_k = 2,
          .context = 1,
          .vocabulary = 10,
          .examples = 3,
          .drafter_hash = "abc",
          .provenance = {{"window", "16"}}};
}

RouterRows some_rows() {
  return {.entropy = {0.5F, 1.5F, 0.0F},
          .probabilities = {0.8F, 0.1F, 0.4F, 0.3F, 1.0F, 0.0F},
          .ids = {3, 9, 0, 5, 7, -1},
          .context = {0.5F, 1.25F, 0.0F},
          .disagreement = {0.25F, 1.0F, 0.0F},
          .rejected = {0, 1, 0},
          .examples = {0, 0, 2}};
}

TEST(RouterData, ComesBackAsItWasWritten) {
  const TemporaryDirectory root;
  write_router_data(root / "r.h5", some_info(), some_rows());
  const RouterData data(root / "r.h5");
  EXPECT_EQ(data.info().positions, 3);
  EXPECT_EQ(data.info().top_k, 2);
  EXPECT_EQ(data.info().examples, 3);
  EXPECT_EQ(data.info().drafter_hash, "abc");
  EXPECT_EQ(data.info().provenance.at("window"), "16");
  EXPECT_EQ(data.rows().ids, some_rows().ids);
  EXPECT_EQ(data.rows().probabilities, some_rows().probabilities);
  EXPECT_EQ(data.info().context, 1);
  EXPECT_EQ(data.rows().context, some_rows().context);
  EXPECT_EQ(data.rows().disagreement, some_rows().disagreement);
  EXPECT_EQ(data.rows().examples, some_rows().examples);
  EXPECT_TRUE(is_router_data(root / "r.h5"));
  EXPECT_THAT(describe_router_data(data), HasSubstr("rejected 0.3333"));
}

TEST(RouterData, PartsAreJoinedInOrder) {
  const TemporaryDirectory root;
  write_router_data(root / "a.h5", some_info(), some_rows());
  write_router_data(root / "none.h5", some_info(), {});
  RouterRows more = some_rows();
  more.entropy = {1, 1, 1};
  write_router_data(root / "b.h5", some_info(), more);
  merge_router_data({root / "a.h5", root / "none.h5", root / "b.h5"}, root / "all.h5", some_info());
  const RouterData data(root / "all.h5");
  EXPECT_EQ(data.rows().size(), 6);
  EXPECT_EQ(data.rows().entropy, (std::vector<float>{0.5F, 1.5F, 0.0F, 1, 1, 1}));
  EXPECT_EQ(data.rows().ids.size(), 12U);
  EXPECT_EQ(data.rows().context.size(), 6U);
  RouterDataInfo other = some_info();
  other.top_k = 3;
  EXPECT_THROW(merge_router_data({root / "a.h5"}, root / "no.h5", other), std::logic_error);
  other = some_info();
  other.context = 2;
  EXPECT_THROW(merge_router_data({root / "a.h5"}, root / "no.h5", other), std::logic_error);
  EXPECT_FALSE(std::filesystem::exists(root / "no.h5"));
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
                                    {[](RouterRows& r) { r.ids[0] = -2; }, "/router/ids"},
                                    {[&](RouterRows& r) { r.context[1] = nan; }, "value 1 of /router/context"},
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

TEST(RouterData, TextOfTheFileIsPrintedEscaped) {
  const TemporaryDirectory root;
  RouterDataInfo info = some_info();
  info.drafter_hash = "\x1b[2J";
  info.provenance["no\nte"] = "\x07";
  write_router_data(root / "r.h5", info, some_rows());
  const std::string text = describe_router_data(RouterData(root / "r.h5"));
  EXPECT_THAT(text, HasSubstr("sha256 \\x1b[2J"));
  EXPECT_THAT(text, HasSubstr("no\\x0ate: \\x07"));
}

TEST(RouterData, OtherFilesAndWrongShapesAreRefused) {
  const TemporaryDirectory root;
  write_text(root / "text.h5", "no file of this kind");
  EXPECT_NE(error_of([&] { RouterData{root / "text.h5"}; }), "no error");
  EXPECT_FALSE(is_router_data(root / "text.h5"));
  // A truncated file.
  write_router_data(root / "r.h5", some_info(), some_rows());
  const std::string whole = read_file(root / "r.h5");
  write_text(root / "half.h5", whole.substr(0, whole.size() / 2));
  EXPECT_NE(error_of([&] { RouterData{root / "half.h5"}; }), "no error");

  Hdf5Writer writer(root / "raw.h5");
  for (const char* name : {"entropy", "disagreement"}) {
    writer.append(writer.create(std::string("/router/") + name, Hdf5Type::kFloat32),
                  std::span<const float>(some_rows().entropy));
  }
  writer.set_attribute("/", "format", std::string("draftsmith router data"));
  writer.set_attribute("/", "format_version", RouterDataInfo::kFormatVersion);
  writer.set_attribute("/", "top_k", int64_t{2});
  writer.set_attribute("/", "context", int64_t{0});
  writer.set_attribute("/", "vocabulary", int64_t{10});
  writer.set_attribute("/", "positions", int64_t{4});
  writer.set_attribute("/", "examples", int64_t{3});
  writer.set_attribute("/", "drafter_hash", std::string("abc"));
  writer.finish();
  EXPECT_THAT(error_of([&] { RouterData{root / "raw.h5"}; }), HasSubstr("positions in /router/entropy"));
}

TEST(RouterData, AnotherFormatVersionIsRefused) {
  const TemporaryDirectory root;
  Hdf5Writer writer(root / "raw.h5");
  writer.set_attribute("/", "format", std::string("draftsmith router data"));
  writer.set_attribute("/", "format_version", RouterDataInfo::kFormatVersion + 1);
  writer.finish();
  EXPECT_THAT(error_of([&] { RouterData{root / "raw.h5"}; }), HasSubstr("another format version"));
}

}  // namespace
}  // namespace draftsmith::data
