// Training of routers: measures against cases worked out by hand, and learning what can be learnt.
#include "train/router/router_training.h"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "base/random.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"

namespace draftsmith::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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

TEST(AucGain, IsNothingBetweenEqualScores) {
  const std::vector<float> scores{0.1F, 0.4F, 0.35F, 0.8F};
  const std::vector<float> labels{0, 0, 1, 1};
  const std::vector<int32_t> sources{0, 1, 2, 3};
  const AucGain gain = auc_gain({scores, scores, labels, sources}, 1);
  EXPECT_EQ(gain.value, 0);
  EXPECT_EQ(gain.low, 0);
  EXPECT_EQ(gain.high, 0);
}

TEST(AucGain, ResamplesWholeSources) {
  // The score ranks all right, the baseline all wrong, so each resample with both labels gains 1.
  const std::vector<float> right{0, 1, 0, 1};
  const std::vector<float> wrong{1, 0, 1, 0};
  const std::vector<float> labels{0, 1, 0, 1};
  const AucGain paired = auc_gain({right, wrong, labels, std::vector<int32_t>{5, 5, 9, 9}}, 1);
  EXPECT_EQ(paired.value, 1);
  EXPECT_EQ(paired.low, 1);
  EXPECT_EQ(paired.high, 1);
  const AucGain none = auc_gain({right, wrong, std::vector<float>(4, 0), std::vector<int32_t>{5, 5, 9, 9}}, 1);
  EXPECT_TRUE(std::isnan(none.value));
}

// Scores that know nothing more than the baseline gain nothing but by chance: with 95 % confidence 0 lies inside the
// interval, so of 40 independent ones more than 7 outside have a probability below 1e-3.
TEST(AucGain, IntervalsHoldTheTruth) {
  int outside = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const CounterRandom random(seed, "auc");
    std::vector<float> score, baseline, labels;
    std::vector<int32_t> sources;
    for (uint64_t i = 0; i < 300; ++i) {
      const double shown = random.uniform(4 * i);
      labels.push_back(random.uniform(4 * i + 1) < shown ? 1.0F : 0.0F);
      score.push_back(static_cast<float>(shown + random.uniform(4 * i + 2)));
      baseline.push_back(static_cast<float>(shown + random.uniform(4 * i + 3)));
      sources.push_back(static_cast<int32_t>(i / 3));
    }
    const AucGain gain = auc_gain({score, baseline, labels, sources}, seed);
    EXPECT_LT(gain.low, gain.value);
    EXPECT_GT(gain.high, gain.value);
    outside += gain.low > 0 || gain.high < 0 ? 1 : 0;
  }
  EXPECT_LE(outside, 7);
}

TEST(Ranking, CountsItemsAsOftenAsTheyAreDrawn) {
  const Ranking ranking(std::vector<float>{0.1F, 0.4F, 0.35F, 0.8F});
  const std::vector<float> labels{0, 0, 1, 1};
  // Items 1 and 2 three times and twice: of 2 * 3 pairs (.35, .4) none is right.
  EXPECT_NEAR(ranking.auc(labels, std::vector<int32_t>{0, 3, 2, 0}), 0, kTolerance);
  EXPECT_NEAR(ranking.auc(labels, std::vector<int32_t>{1, 1, 2, 0}), 0.5, kTolerance);
}

TEST(Reliability, EqualsACaseWorkedOutByHand) {
  const std::vector<float> predicted{0.05F, 0.15F, 0.19F, 1.0F, 0.95F};
  const std::vector<float> targets{0.0F, 0.3F, 0.1F, 0.9F, 0.7F};
  const std::vector<int32_t> rejected{0, 1, 0, 1, 1};
  const auto bins = reliability({predicted, targets, rejected}, 10);
  ASSERT_EQ(bins.size(), 10U);
  EXPECT_EQ(bins[0].count, 1);
  EXPECT_EQ(bins[1].count, 2);
  EXPECT_NEAR(bins[1].predicted, 0.17, 1e-7);
  EXPECT_NEAR(bins[1].disagreement, 0.2, 1e-7);
  EXPECT_NEAR(bins[1].rejected, 0.5, kTolerance);
  EXPECT_EQ(bins[2].count, 0);
  EXPECT_EQ(bins[9].count, 2);  // 1 belongs to the last bin
  EXPECT_NEAR(bins[9].predicted, 0.975, 1e-7);
  EXPECT_NEAR(bins[9].disagreement, 0.8, 1e-7);
  EXPECT_NEAR(calibration_error(bins, &ReliabilityBin::disagreement), (0.05 + 2 * 0.03 + 2 * 0.175) / 5, 1e-7);
  EXPECT_NEAR(calibration_error(bins, &ReliabilityBin::rejected), (0.05 + 2 * 0.33 + 2 * 0.025) / 5, 1e-7);
}

const std::string kHash(64, 'b');

std::unique_ptr<model::TransformerModel> small_drafter() {
  const model::ModelSizes sizes = {.vocabulary = 30, .width = 12, .head_width = 6, .ff_width = 16, .decoder_layers = 1};
  return std::make_unique<model::TransformerModel>(model::t5_config(sizes), 3);
}

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
    rows.context.insert(rows.context.end(), model::kRouterContext, 0.5F);
    rows.disagreement.push_back(static_cast<float>(disagreement));
    rows.rejected.push_back(random.uniform(at + 2) < disagreement ? 1 : 0);
    rows.examples.push_back(static_cast<int32_t>(n / 10));
  }
  return rows;
}

class RouterTraining : public testing::Test {
 protected:
  data::RouterData data(const std::string& hash = kHash, int64_t count = 3000) {
    return written(learnable_rows(count), hash);
  }

  data::RouterData written(const data::RouterRows& rows, const std::string& hash = kHash) {
    data::write_router_data(root_ / "r.h5",
                            {.top_k = 2,
                             .context = model::kRouterContext,
                             .vocabulary = 30,
                             .examples = rows.size() / 10,
                             .drafter_hash = hash,
                             .provenance = {{"drafter", "work/other"}}},
                            rows);
    return data::RouterData(root_ / "r.h5");
  }

  RoutedDrafter drafter() const { return {*drafter_, "work/small", kHash}; }

  static RouterTrainingOptions options() {
    return {.top_k = 2, .hidden = 16, .epochs = 30, .batch_size = 64, .lr = 1e-2, .threshold = 0.7, .max_draft = 9};
  }

  const TemporaryDirectory root_;
  const std::unique_ptr<model::TransformerModel> drafter_ = small_drafter();
};

TEST_F(RouterTraining, LearnsWhatTheFeaturesShow) {
  const TrainedRouter trained = train_router(data(), drafter(), options());
  const RouterReport& report = trained.report;
  EXPECT_EQ(report.training_positions + report.validation_positions + report.test_positions, 3000);
  EXPECT_GT(report.validation_positions, 150);
  EXPECT_GT(report.test_positions, 150);
  // All that can be won over the constant prediction but for a tenth.
  EXPECT_LT(report.cross_entropy - report.least_cross_entropy,
            0.1 * (report.constant_cross_entropy - report.least_cross_entropy));
  ASSERT_EQ(report.auc.size(), 3U);
  EXPECT_EQ(report.auc[0].score, "router");
  EXPECT_GT(report.auc[0].disagreement, report.auc[1].disagreement + 0.1);  // entropy alone ranks worse
  EXPECT_NEAR(report.auc[2].rejected, 0.5, kTolerance);                     // all had the same maximum
  EXPECT_LT(report.calibration_error, 0.03);
  int64_t counted = 0;
  for (const ReliabilityBin& bin : report.bins) counted += bin.count;
  EXPECT_EQ(counted, report.test_positions);
  EXPECT_GT(report.gain.rejected.low, 0.1);  // the largest probability says nothing here
  EXPECT_NEAR(report.gain.rejected.value, report.auc[0].rejected - report.auc[2].rejected, kTolerance);
  EXPECT_NEAR(report.gain.disagreement.value, report.auc[0].disagreement - report.auc[2].disagreement, kTolerance);
  EXPECT_EQ(trained.router.config().threshold, 0.7);
  EXPECT_EQ(trained.router.config().max_draft, 9);
  EXPECT_EQ(trained.router.config().drafter_hash, kHash);
}

TEST_F(RouterTraining, LearnsWhatTheContextShows) {
  data::RouterRows rows = learnable_rows(2000);
  const CounterRandom random(6, "context");
  for (size_t n = 0; n < rows.disagreement.size(); ++n) {
    rows.disagreement[n] = static_cast<float>(random.uniform(n));
    rows.context[n * model::kRouterContext + 3] = 1 - rows.disagreement[n] / 2;
  }
  const data::RouterData positions = written(rows);
  const auto auc = [&](bool context) {
    RouterTrainingOptions few = options();
    few.context = context;
    few.epochs = 8;
    const TrainedRouter trained = train_router(positions, drafter(), few);
    EXPECT_EQ(trained.router.config().reads_context, context);
    return trained.report.auc[0].disagreement;
  };
  EXPECT_GT(auc(true), auc(false) + 0.1);
}

TEST_F(RouterTraining, RefusesDataWithoutTheContextUnlessNoneIsRead) {
  data::RouterRows rows = learnable_rows(300);
  rows.context.clear();
  data::write_router_data(root_ / "plain.h5", {.top_k = 2, .vocabulary = 30, .examples = 30, .drafter_hash = kHash},
                          rows);
  const data::RouterData plain(root_ / "plain.h5");
  RouterTrainingOptions few = options();
  few.epochs = 1;
  EXPECT_THAT(error_of([&] { train_router(plain, drafter(), few); }),
              AllOf(HasSubstr("another context"), HasSubstr("context = false"), HasSubstr("0 numbers")));
  few.context = false;
  EXPECT_FALSE(train_router(plain, drafter(), few).router.config().reads_context);
}

TEST_F(RouterTraining, IsDeterministic) {
  RouterTrainingOptions few = options();
  few.epochs = 2;
  const data::RouterData positions = data();
  const TrainedRouter a = train_router(positions, drafter(), few);
  const TrainedRouter b = train_router(positions, drafter(), few);
  for (const auto& [name, value] : a.router.parameters()) EXPECT_TRUE(at::equal(value, b.router.parameters().at(name)));
  EXPECT_EQ(to_json(a.report), to_json(b.report));
  few.seed = 2;
  EXPECT_NE(to_json(train_router(positions, drafter(), few).report), to_json(a.report));
}

TEST_F(RouterTraining, LearnsWhatWasRejectedWhereThatIsAskedFor) {
  RouterTrainingOptions hard = options();
  hard.target = "rejected";
  const RouterReport report = train_router(data(), drafter(), hard).report;
  EXPECT_EQ(report.target, "rejected");
  EXPECT_NEAR(report.least_cross_entropy, 0, 1e-6);  // of labels 0 and 1
  EXPECT_LT(report.cross_entropy, report.constant_cross_entropy - 0.1);
  EXPECT_LT(report.calibration_error, 0.1);
  EXPECT_GT(report.auc[0].rejected, report.auc[1].rejected + 0.1);
  RouterTrainingOptions soft = options();
  EXPECT_GT(train_router(data(), drafter(), soft).report.least_cross_entropy, 0.3);
}

// The epoch is chosen on one part and the report is about another: what is never trained on and chose nothing.
TEST_F(RouterTraining, TheReportIsAboutPositionsThatChoseNothing) {
  RouterTrainingOptions few = options();
  few.epochs = 3;
  std::vector<double> losses;
  const RouterReport apart =
      train_router(data(), drafter(), few, [&](int64_t, double loss) { losses.push_back(loss); }).report;
  const double chosen = *std::min_element(losses.begin(), losses.end());
  EXPECT_GT(std::abs(apart.cross_entropy - chosen), 1e-6);
  EXPECT_THAT(report_text(apart), HasSubstr(std::to_string(apart.test_positions) + " more"));
  few.test_share = 0;  // as before: on the positions that chose
  losses.clear();
  const RouterReport same =
      train_router(data(), drafter(), few, [&](int64_t, double loss) { losses.push_back(loss); }).report;
  EXPECT_EQ(same.test_positions, 0);
  EXPECT_NEAR(same.cross_entropy, *std::min_element(losses.begin(), losses.end()), 1e-6);
  EXPECT_THAT(report_text(same), HasSubstr("these too"));
  few.validation_share = 0.5;
  few.test_share = 0.5;
  Problems problems;
  validate_options(few, "router", problems);
  EXPECT_THAT(error_of([&] { problems.throw_if_any(); }), HasSubstr("test_share"));
}

TEST_F(RouterTraining, StopsWhenNothingGetsBetter) {
  RouterTrainingOptions patient = options();
  patient.lr = 1e-12;
  patient.epochs = 50;
  patient.patience = 3;
  int64_t epochs = 0;
  const TrainedRouter trained =
      train_router(data(kHash, 300), drafter(), patient, [&](int64_t run, double) { epochs = run; });
  EXPECT_EQ(trained.report.epochs, epochs);
  EXPECT_LE(epochs, trained.report.best_epoch + 3);
  EXPECT_LT(epochs, 50);
}

TEST_F(RouterTraining, RefusesDataThatDoNotFitNamingBothSides) {
  const std::string other = error_of([&] { train_router(data(std::string(64, 'c')), drafter(), options()); });
  EXPECT_THAT(other, HasSubstr("another drafter"));
  EXPECT_THAT(other, HasSubstr("work/small"));
  EXPECT_THAT(other, HasSubstr("work/other"));
  RouterTrainingOptions more = options();
  more.top_k = 3;
  const std::string tokens = error_of([&] { train_router(data(), drafter(), more); });
  EXPECT_THAT(tokens, HasSubstr("top_k = 3"));
  EXPECT_THAT(tokens, HasSubstr("2 tokens"));
  EXPECT_THAT(error_of([&] { train_router(data(kHash, 10), drafter(), options()); }), HasSubstr("too few"));
}

TEST_F(RouterTraining, ReportIsWrittenReadAndShown) {
  RouterTrainingOptions few = options();
  few.epochs = 1;
  const RouterReport report = train_router(data(), drafter(), few).report;
  write_json(root_ / "router_report.json", to_json(report));
  const RouterReport read = load_router_report(root_ / "router_report.json");
  EXPECT_EQ(read.auc.size(), report.auc.size());
  const std::string text = report_text(report);
  EXPECT_THAT(text, HasSubstr("calibration error"));
  EXPECT_THAT(text, HasSubstr("max_probability"));
  EXPECT_THAT(text, HasSubstr("less that of the largest probability alone: of rejections +0."));
  RouterReport sorted = report;
  std::sort(sorted.auc.begin(), sorted.auc.end(), [](const auto& a, const auto& b) { return a.score < b.score; });
  EXPECT_EQ(to_json(read), to_json(sorted));
  EXPECT_EQ(report_text(read), report_text(sorted));
  const std::string svg = reliability_svg(report);
  EXPECT_TRUE(svg.starts_with("<svg xmlns="));
  EXPECT_THAT(svg, HasSubstr("<path class=\"mark"));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  nlohmann::ordered_json damaged = to_json(report);
  damaged["gain_over_max_probability"].erase("rejected");
  write_json(root_ / "bad.json", damaged);
  EXPECT_THAT(error_of([&] { load_router_report(root_ / "bad.json"); }),
              HasSubstr("gain_over_max_probability.rejected"));
  write_file_atomic(root_ / "bad.json", "{\"auc\": 1}");
  EXPECT_THAT(error_of([&] { load_router_report(root_ / "bad.json"); }), HasSubstr("not a report of a router"));
}

}  // namespace
}  // namespace draftsmith::train
