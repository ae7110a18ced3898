// Training of routers: measures against cases worked out by hand, and learning what can be learnt.
#include "train/router/router_training.h"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>

#include "base/files.h"
#include "base/random.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"

namespace draftsmith::train {
namespace {

constexpr double kTolerance = 1e-9;

TEST(WeightedAuc, EqualsCasesWorkedOutByHand) {
  const std::vector<float> scores{0.1F, 0.4F, 0.35F, 0.8F};
  // Pairs (positive, negative): (.35,.1) right, (.35,.4) wrong, (.8,.1), (.8,.4) right.
  EXPECT_NEAR(weighted_auc(scores, std::vector<float>{0, 0, 1, 1}), 0.75, kTolerance);
  EXPECT_NEAR(weighted_auc(scores, std::vector<float>{1, 1, 0, 0}), 0.25, kTolerance);
  EXPECT_NEAR(weighted_auc(std::vector<float>{1, 1, 1}, std::vector<float>{0, 1, 1}), 0.5, kTolerance);  // all equal
  EXPECT_TRUE(std::isnan(weighted_auc(scores, std::vector<float>{0, 0, 0, 0})));
  // Soft: (score 0, w .25), (score 1, w .75). Positive mass 1, negative mass 1. Positive of the first (.25) against
  // its own negative (.75) half; of the second (.75) against the first's negative (.75) and half its own (.25).
  EXPECT_NEAR(weighted_auc(std::vector<float>{0, 1}, std::vector<float>{0.25F, 0.75F}),
              0.25 * 0.375 + 0.75 * (0.75 + 0.125), kTolerance);
}

const std::string kHash(64, 'b');

// Positions whose disagreement is large where the most likely token is even, which only its embedding shows, and grows
// with the entropy.
data::RouterRows learnable_rows(int64_t count) {
  const CounterRandom random(4, "rows");
  data::RouterRows rows;
  for (int64_t n = 0; n < count; ++n) {
    const auto at = static_cast<uint64_t>(n) * 4;
    const auto id = static_cast<int32_t>(random.below(at, 30));
    const double entropy = 3 * random.uniform(at + 1);
    const double disagreement = (id % 2 == 0 ? 0.55 : 0.05) + 0.1 * entropy;
    rows.entropy.push_back(static_cast<float>(entropy));
    rows.probabilities.insert(rows.probabilities.end(), {0.5F, 0.2F});
    rows.ids.insert(rows.ids.end(), {id, static_cast<int32_t>((id + 7) % 30)});
    rows.disagreement.push_back(static_cast<float>(disagreement));
    rows.rejected.push_back(random.uniform(at + 2) < disagreement ? 1 : 0);
    rows.examples.push_back(static_cast<int32_t>(n / 10));
  }
  return rows;
}

class RouterTraining : public testing::Test {
 protected:
  data::RouterData data(const std::string& hash = kHash, int64_t count = 3000) {
    data::RouterDataInfo info{.top_k = 2, .vocabulary = 30, .examples = count / 10, .drafter_hash = hash};
    info.provenance = {{"drafter", "work/other"}};
    data::write_router_data(root_ / "r.h5", info, learnable_rows(count));
    return data::RouterData(root_ / "r.h5");
  }

  RoutedDrafter drafter() const { return {drafter_, "work/small", kHash}; }

  static RouterTrainingOptions options() {
    return {.top_k = 2, .hidden = 16, .epochs = 30, .batch_size = 64, .lr = 1e-2, .threshold = 0.7, .max_draft = 9};
  }

  const TemporaryDirectory root_;
  const model::TransformerModel drafter_{
      model::t5_config({.vocabulary = 30, .width = 12, .head_width = 6, .ff_width = 16, .decoder_layers = 1}), 3};
};

TEST_F(RouterTraining, LearnsWhatTheFeaturesShow) {
  const TrainedRouter trained = train_router(data(), drafter(), options());
  const nlohmann::json report = trained.report;
  const auto number = [&](const char* key) { return report.at(key).get<double>(); };
  EXPECT_EQ(number("training_positions") + number("validation_positions") + number("test_positions"), 3000);
  EXPECT_GT(number("validation_positions"), 150);
  EXPECT_GT(number("test_positions"), 150);
  // All that can be won over the constant prediction but for a tenth.
  EXPECT_LT(number("cross_entropy") - number("least_cross_entropy"),
            0.1 * (number("constant_cross_entropy") - number("least_cross_entropy")));
  const auto auc = [&](const char* score, const char* of) { return report.at("auc").at(score).at(of).get<double>(); };
  EXPECT_GT(auc("router", "disagreement"), auc("entropy", "disagreement") + 0.1);  // entropy alone ranks worse
  EXPECT_NEAR(auc("max_probability", "rejected"), 0.5, kTolerance);                // all had the same maximum
  EXPECT_EQ(trained.router.config().threshold, 0.7);
  EXPECT_EQ(trained.router.config().max_draft, 9);
  EXPECT_EQ(trained.router.config().drafter_hash, kHash);
}

// The epoch is chosen on one part and the report is about another: what is never trained on and chose nothing.
TEST_F(RouterTraining, TheReportIsAboutPositionsThatChoseNothing) {
  RouterTrainingOptions few = options();
  few.epochs = 3;
  std::vector<double> losses;
  const nlohmann::json apart =
      train_router(data(), drafter(), few, [&](int64_t, double loss) { losses.push_back(loss); }).report;
  const double chosen = *std::min_element(losses.begin(), losses.end());
  EXPECT_GT(std::abs(apart.at("cross_entropy").get<double>() - chosen), 1e-6);
  EXPECT_THAT(router_report_text(apart, "here"), HasSubstr(apart.at("test_positions").dump() + " more"));
  few.test_share = 0;
  EXPECT_THAT(router_report_text(train_router(data(), drafter(), few).report, "here"), HasSubstr("these too"));
  few.validation_share = 0.5;
  few.test_share = 0.5;
  EXPECT_THAT(option_problems(few), HasSubstr("test_share"));
}

TEST_F(RouterTraining, StopsWhenNothingGetsBetter) {
  RouterTrainingOptions patient = options();
  patient.lr = 1e-12;
  patient.epochs = 50;
  patient.patience = 3;
  const auto report = train_router(data(kHash, 300), drafter(), patient).report;
  EXPECT_LE(report.at("epochs").get<int64_t>(), report.at("best_epoch").get<int64_t>() + 3);
  EXPECT_LT(report.at("epochs"), 50);
}

TEST_F(RouterTraining, RefusesDataThatDoNotFitNamingBothSides) {
  EXPECT_THAT(error_of([&] { train_router(data(std::string(64, 'c')), drafter(), options()); }),
              AllOf(HasSubstr("another drafter"), HasSubstr("work/small"), HasSubstr("work/other")));
  RouterTrainingOptions more = options();
  more.top_k = 3;
  EXPECT_THAT(error_of([&] { train_router(data(), drafter(), more); }),
              AllOf(HasSubstr("top_k = 3"), HasSubstr("2 tokens")));
  EXPECT_THAT(error_of([&] { train_router(data(kHash, 10), drafter(), options()); }), HasSubstr("too few"));
}

TEST_F(RouterTraining, TheReportIsShownOrRefusedByName) {
  RouterTrainingOptions few = options();
  few.epochs = 1;
  nlohmann::json json = train_router(data(), drafter(), few).report;
  json["auc"]["entropy"]["rejected"] = nullptr;
  const std::string text = router_report_text(json, "here");
  EXPECT_THAT(text, AllOf(HasSubstr("cross entropy"), HasSubstr("max_probability")));
  json["auc"]["router"].erase("rejected");
  EXPECT_THAT(error_of([&] { router_report_text(json, "bad.json"); }),
              AllOf(HasSubstr("bad.json"), HasSubstr("not a report of a router"), HasSubstr("rejected")));
}

}  // namespace
}  // namespace draftsmith::train
