// Verification curves as files: what is written is read again, and what is wrong is named with its place.
#include "infer/costs/step_curve.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::infer::testing {
namespace {

using ::testing::AllOf;
using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

StepCurve curve_of_four() {
  StepCurve curve;
  curve.model = "work/target \"of\" Zoë";
  curve.dtype = "int8";
  curve.processor = "A CPU @ 2.50GHz";
  curve.threads = 2;
  curve.rows = 3;
  curve.length = 64;
  curve.source = 32;
  curve.points = {{1, 0.1 + 0.2}, {2, 0.35}, {5, 0.5}, {8, 1.1}};
  return curve;
}

class StepCurveFile : public ::testing::Test {
 protected:
  // Returns the error of a curve that `change` has changed.
  std::string error_after(const std::function<void(nlohmann::ordered_json&)>& change) {
    write_step_curve(file_, curve_of_four());
    auto json = nlohmann::ordered_json::parse(read_file(file_));
    change(json);
    write_text(file_, json.dump(2));
    return error_of([&] { read_step_curve(file_); });
  }

  TemporaryDirectory folder_;
  std::filesystem::path file_ = folder_ / "curve.json";
};

TEST_F(StepCurveFile, IsReadAsItWasWritten) {
  const StepCurve written = curve_of_four();
  write_step_curve(file_, written);
  const StepCurve read = read_step_curve(file_);
  EXPECT_EQ(read.model, written.model);
  EXPECT_EQ(read.dtype, written.dtype);
  EXPECT_EQ(read.processor, written.processor);
  EXPECT_EQ(read.threads, 2);
  EXPECT_EQ(read.rows, 3);
  EXPECT_EQ(read.length, 64);
  EXPECT_EQ(read.source, 32);
  ASSERT_EQ(read.points.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(read.points[i].tokens, written.points[i].tokens);
    EXPECT_EQ(read.points[i].seconds, written.points[i].seconds);  // to the bit
  }
  EXPECT_TRUE(read.measured_like(written));
}

TEST(StepCurve, IsLinearBetweenMeasuredSteps) {
  EXPECT_THAT(curve_of_four().seconds(), ElementsAre(DoubleEq(0.3), DoubleEq(0.35), DoubleEq(0.4), DoubleEq(0.45),
                                                     DoubleEq(0.5), DoubleEq(0.7), DoubleEq(0.9), DoubleEq(1.1)));
  StepCurve one = curve_of_four();
  one.points.resize(1);
  EXPECT_THAT(one.seconds(), ElementsAre(DoubleEq(0.3)));
  EXPECT_DOUBLE_EQ(curve_of_four().relative({5, 0.6}), 2);
}

TEST(StepCurve, KnowsWhetherAnotherWasMeasuredAlike) {
  for (const auto& change : std::vector<std::function<void(StepCurve&)>>{
           [](StepCurve& curve) { curve.threads = 1; }, [](StepCurve& curve) { curve.rows = 1; },
           [](StepCurve& curve) { curve.processor = "B"; }}) {
    StepCurve other = curve_of_four();
    EXPECT_TRUE(other.measured_like(curve_of_four()));
    change(other);
    EXPECT_FALSE(other.measured_like(curve_of_four()));
  }
}

TEST_F(StepCurveFile, OfAnotherFormatIsRefused) {
  EXPECT_THAT(error_after([](auto& json) { json = {1, 2}; }), AllOf(HasSubstr("not a step curve"), HasSubstr("[1,2]")));
  EXPECT_THAT(error_after([](auto& json) { json.erase("format"); }),
              AllOf(HasSubstr("curve.json"), HasSubstr("not a step curve"), HasSubstr("draftsmith bench")));
  EXPECT_THAT(error_after([](auto& json) { json["version"] = 2; }), HasSubstr("unknown version"));
  write_text(file_, "{\n  \"format\": \n}");
  EXPECT_THAT(error_of([&] { read_step_curve(file_); }), HasSubstr("curve.json:3"));
  EXPECT_THAT(error_of([&] { read_step_curve(folder_ / "none.json"); }), HasSubstr("none.json"));
}

TEST_F(StepCurveFile, ErrorsNameEveryWrongStep) {
  const std::string error = error_after([](auto& json) {
    json["threads"] = 0;
    json["curve"][0]["seconds"] = 0;
    json["curve"][2]["tokens"] = 2;
    json["curve"][3].erase("seconds");
  });
  EXPECT_THAT(error, AllOf(HasSubstr("'threads'"), HasSubstr("curve.json: curve[0]"), HasSubstr("a number above 0")));
  EXPECT_THAT(error, AllOf(HasSubstr("curve.json: curve[2]"), HasSubstr("an integer in 3 to 1024")));
  EXPECT_THAT(error, AllOf(HasSubstr("curve.json: curve[3]"), HasSubstr("'seconds' is missing")));
}

TEST_F(StepCurveFile, IsKnownByItsBeginningAndDescribed) {
  write_step_curve(file_, curve_of_four());
  EXPECT_TRUE(is_step_curve(file_));
  EXPECT_FALSE(is_step_curve(write_text(folder_ / "results.json", "{\"version\": 1}")));
  EXPECT_FALSE(is_step_curve(folder_ / "none.json"));
  EXPECT_THAT(describe_step_curve(read_step_curve(file_)),
              AllOf(HasSubstr("int8"), HasSubstr("batch 3, 64 tokens in the cache, sources of 32 tokens"),
                    HasSubstr("500.000")));
}

TEST_F(StepCurveFile, MustBeginWithOneToken) {
  EXPECT_THAT(error_after([](auto& json) { json["curve"].erase(0); }),
              AllOf(HasSubstr("curve[0]"), HasSubstr("1 to 1"), HasSubstr("2")));
  EXPECT_THAT(error_after([](auto& json) { json["curve"] = nlohmann::ordered_json::array(); }),
              HasSubstr("a list of at least one step"));
  EXPECT_THAT(error_after([](auto& json) { json["curve"][1] = "fast"; }),
              AllOf(HasSubstr("curve[1]"), HasSubstr("a JSON object")));
  EXPECT_THAT(error_after([](auto& json) { json["curve"][1]["seconds"] = -0.5; }), HasSubstr("a number above 0"));
  EXPECT_THAT(error_after([](auto& json) { json["curve"][1]["seconds"] = "fast"; }), HasSubstr("a number"));
}

}  // namespace
}  // namespace draftsmith::infer::testing
