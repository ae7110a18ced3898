// Distilling from stored distributions: what a cache gives back is what the teacher said, as far as k ids tell.
#include <array>
#include <cmath>
#include <limits>

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include "base/files.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"
#include "tests/train/fixtures.h"
#include "tests/train/objectives/fixtures.h"
#include "train/teacher/cached_teacher.h"

namespace draftsmith::train {
namespace {

constexpr int64_t kExamples = 9;

TEST(StoredRows, HoldTheLikeliestIdsTheLabelAndTheMassOfTheRest) {
  const at::Tensor logits = at::arange(10 * 17, at::kDouble).mul(7.31).sin().mul(4).reshape({10, 17});
  const at::Tensor labels = logits.argmax(1);
  labels.narrow(0, 0, 5).copy_(logits.argmin(1).narrow(0, 0, 5));  // half of them are not likely
  for (const double temperature : {1.0, 2.5}) {
    const StoredRows rows = store_rows(logits, labels, {.k = 5, .temperature = temperature});
    const at::Tensor p = (logits / temperature).softmax(1);
    for (int64_t i = 0; i < 10; ++i) {
      const at::Tensor expected = std::get<0>(std::get<1>(logits[i].topk(5)).sort());
      EXPECT_TRUE(at::equal(rows.ids[i].to(at::kLong), expected)) << i;
      double rest = 1;
      for (int64_t j = 0; j < 5; ++j) rest -= p[i][expected[j]].item<double>();
      const int64_t label = labels[i].item<int64_t>();
      if (!expected.eq(label).any().item<bool>()) rest -= p[i][label].item<double>();
      EXPECT_NEAR(std::exp(rows.tail_log_mass[i].item<float>()), rest, 1e-3) << i;
      EXPECT_NEAR(std::exp(rows.label_log_probs[i].item<float>()), p[i][label].item<double>(), 1e-3) << i;
    }
    EXPECT_LT(difference(rows.log_probs.to(at::kDouble).exp(), p.gather(1, rows.ids.to(at::kLong))), 1e-3);
    // The label has a place of its own only where it is none of the k.
    const TeacherBlock block = read_rows(rows, labels, temperature);
    for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(block.ids[i][5].item<int64_t>(), i < 5 ? labels[i].item<int64_t>() : -1);
  }
}

TEST(StoredRows, AreFiniteWhereNothingIsLeft) {
  at::Tensor logits = at::full({1, 6}, -1e9, at::kFloat);
  logits[0][2] = 0;
  const at::Tensor labels = at::zeros({1}, at::kLong);
  const StoredRows rows = store_rows(logits, labels, {.k = 2});
  EXPECT_TRUE(at::isfinite(rows.log_probs).all().item<bool>());
  EXPECT_EQ(rows.tail_log_mass.item<float>(), -65504);
  const StoredRows all_but_label = store_rows(logits, labels, {.k = 5});
  EXPECT_TRUE(at::isfinite(all_but_label.tail_log_mass).all().item<bool>());
}

// A teacher, a student and a corpus; caches of the teacher for the corpus.
class TeacherCaches : public testing::Test {
 protected:
  void SetUp() override {
    write_reversal_corpus(folder_ / "train.h5", kExamples, 3);
    corpus_.emplace(folder_ / "train.h5");
  }

  data::TeacherCache cache_of(int64_t k, double temperature = 1) {
    data::TeacherCacheInfo info{.k = k, .vocabulary = kTestVocabulary, .temperature = temperature};
    info.tokenizer_hash = "none";
    info.corpus_hash = data::corpus_hash(*corpus_);
    const StoredRows rows = TeacherLogits(teacher_, *corpus_, info, 64).rows(0, corpus_->size(), [](int64_t) {});
    data::write_teacher_cache(folder_ / "cache.h5", info, rows.by_example(*corpus_, 0, corpus_->size()));
    return data::TeacherCache(folder_ / "cache.h5");
  }

  // Of the student on a batch, taught by `source`.
  double loss(TeacherSource& source, const Batch& batch, const std::string& divergence, double temperature = 1) {
    const at::NoGradGuard no_grad;
    const auto distributions = source.distributions(batch);
    const HeadLabels labels = labels_in_head(student_, batch.labels);
    const at::Tensor hidden = labels.of(hidden_at_labels(student_, batch, {}));
    return linear_distillation(hidden, model::head_weight(student_), {.labels = labels}, *distributions,
                               {student_.config(), source.vocabulary()},
                               {.lambda = 0, .divergence = divergence, .temperature = temperature})
        .item<double>();
  }

  Batch batch(const std::vector<int64_t>& examples) const { return make_batch(*corpus_, examples, teacher_.info()); }

  TemporaryDirectory folder_;
  std::optional<data::Corpus> corpus_;
  model::TransformerModel teacher_{tiny_config(), 5}, student_{tiny_config(), 6};
};

constexpr std::array kDivergences = {"forward_kl", "reverse_kl", "jsd", "tv"};

TEST_F(TeacherCaches, AWholeCacheGivesTheLiveTeachersLoss) {
  LiveTeacher live(teacher_);
  const Batch examples = batch({4, 0, 7});
  for (const double made_at : {1.0, 1.5}) {
    const data::TeacherCache cache = cache_of(kTestVocabulary, made_at);
    CachedTeacher cached(cache);
    EXPECT_FALSE(cached.temperature().has_value());
    EXPECT_EQ(cached.live(), nullptr);
    Batch other = batch({0, 1});
    other.labels = other.labels.narrow(0, 0, other.label_count() - 1);
    EXPECT_THROW(cached.distributions(other), std::logic_error) << "labels of another corpus";
    for (const char* divergence : kDivergences) {
      for (const double temperature : {1.0, 2.0}) {
        const double expected = loss(live, examples, divergence, temperature);
        EXPECT_NEAR(loss(cached, examples, divergence, temperature), expected, 5e-3 * std::abs(expected) + 1e-4);
      }
    }
  }
}

TEST_F(TeacherCaches, ATruncatedCacheNeverSaysMoreThanTheLiveTeacher) {
  LiveTeacher live(teacher_);
  const Batch examples = batch({8, 1, 3});
  for (const char* divergence : kDivergences) {
    double before = 0;
    for (const int64_t k : {1, 4, 12, 28}) {
      const data::TeacherCache cache = cache_of(k);
      CachedTeacher cached(cache);
      EXPECT_EQ(cached.temperature(), 1.0);
      const double truncated = loss(cached, examples, divergence), rounding = 2e-3 * loss(live, examples, divergence);
      EXPECT_LE(truncated, loss(live, examples, divergence) + rounding) << k;
      EXPECT_GE(truncated, before - rounding) << k;
      before = truncated;
    }
    // With all ids but one nothing is hidden.
    EXPECT_NEAR(before, loss(live, examples, divergence), 5e-3 * before + 1e-4);
  }
}

TEST_F(TeacherCaches, RowsOfARangeAreThoseOfTheWholeCorpus) {
  TeacherLogits logits(teacher_, *corpus_, {.k = 4}, 40);
  int64_t counted = 0;
  const StoredRows whole = logits.rows(0, kExamples, [&](int64_t positions) { counted += positions; });
  EXPECT_EQ(counted, corpus_->info().target_tokens);
  const StoredRows part = logits.rows(3, 6, [](int64_t) {});
  int64_t first = 0;
  for (int64_t i = 0; i < 3; ++i) first += static_cast<int64_t>(corpus_->target(i).size());
  const int64_t count = part.log_probs.size(0);
  EXPECT_TRUE(at::equal(part.ids, whole.ids.narrow(0, first, count)));
  EXPECT_LT(difference(part.log_probs, whole.log_probs.narrow(0, first, count)), 1e-2);
  const StoredRows again = logits.rows(3, 6, [](int64_t) {});
  EXPECT_TRUE(at::equal(part.log_probs, again.log_probs));
}

TEST_F(TeacherCaches, LogitsThatAreNotFiniteAreAnError) {
  auto parameters = teacher_.parameters();
  parameters["head.weight"] = at::full_like(parameters["head.weight"], std::numeric_limits<float>::quiet_NaN());
  model::TransformerModel broken(tiny_config(), parameters);
  TeacherLogits logits(broken, *corpus_, {.k = 4}, 64);
  EXPECT_THAT(error_of<RunError>([&] { logits.rows(0, 2, [](int64_t) {}); }), HasSubstr("not finite"));
  auto& embedding = parameters.at("embedding.weight");
  embedding = at::full_like(embedding, std::numeric_limits<float>::infinity());
  model::TransformerModel no_states(tiny_config(), parameters);
  TeacherLogits states(no_states, *corpus_, {.k = 4, .states = {.layers = {0}, .width = tiny_config().width}}, 64);
  EXPECT_THAT(error_of<RunError>([&] { states.rows(0, 2, [](int64_t) {}); }), HasSubstr("states are not finite"));
}

}  // namespace
}  // namespace draftsmith::train
