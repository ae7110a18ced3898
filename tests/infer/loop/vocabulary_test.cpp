#include "infer/loop/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "data/tokenizers/sentencepiece.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/support/tensors.h"

namespace draftsmith::infer {
namespace {

using ::testing::HasSubstr;

class Vocabularies : public ::testing::Test {
 protected:
  std::unique_ptr<data::Tokenizer> tokenizer(const std::string& name, const std::vector<std::string>& lines) const {
    const auto file = folder_ / name;
    data::train_tokenizer(lines, {.type = "bpe", .vocabulary = 24, .exact_size = false}, file);
    return data::load_tokenizer(file);
  }

  std::string difference(const data::Tokenizer& target, const data::Tokenizer& drafter) const {
    model::ModelInfo info;
    Problems problems;
    compare_vocabularies(info, info, &target, &drafter, problems);
    return problems.empty() ? "" : to_string(problems.list().front());
  }

  TemporaryDirectory folder_;
};

TEST_F(Vocabularies, TheSameTokenizerFitsWhateverTheModelsPadding) {
  const auto words = tokenizer("a.model", {"abc abd acd", "bcd abc"});
  const auto copy = tokenizer("b.model", {"abc abd acd", "bcd abc"});
  model::ModelInfo target;
  model::ModelInfo drafter;
  target.vocabulary = 128;
  drafter.vocabulary = 64;
  Problems problems;
  compare_vocabularies(target, drafter, words.get(), copy.get(), problems);
  EXPECT_TRUE(problems.empty());
}

TEST_F(Vocabularies, AnotherTokenizerIsNamedByTheFirstPieceThatDiffers) {
  const auto letters = tokenizer("a.model", {"abc abd acd", "bcd abc"});
  const auto others = tokenizer("b.model", {"xyz xyw xzw", "yzw xyz"});
  const std::string problem = difference(*letters, *others);
  EXPECT_THAT(problem, HasSubstr("different pieces"));
  EXPECT_THAT(problem, HasSubstr("id 3 is"));
}

TEST_F(Vocabularies, SentinelsAndAddedTokensAreNoPadding) {
  const auto words = tokenizer("spiece.model", {"abc abd acd", "bcd abc"});
  const int64_t pieces = words->vocabulary();
  const auto settings = [&](const std::string& json) { write_file_atomic(folder_ / "tokenizer_config.json", json); };
  EXPECT_EQ(ids_in_use(*words, {}), pieces);
  settings(R"({"tokenizer_class": "T5Tokenizer"})");
  EXPECT_EQ(ids_in_use(*words, {}), pieces + 100);
  settings(R"({"tokenizer_class": "T5Tokenizer", "extra_ids": 0})");
  EXPECT_EQ(ids_in_use(*words, {}), pieces);
  settings(R"({"tokenizer_class": "T5Tokenizer", "extra_ids": 3})");
  EXPECT_EQ(ids_in_use(*words, {}), pieces + 3);
  settings(R"({"tokenizer_class": "LlamaTokenizer", "added_tokens_decoder": {")" + std::to_string(pieces + 5) +
           R"(": {"content": "<end>", "special": true}}})");
  EXPECT_EQ(ids_in_use(*words, {}), pieces + 6);
  settings("{}");
  EXPECT_EQ(ids_in_use(*words, {}), pieces);
  write_file_atomic(folder_ / "config.json", R"({"model_type": "t5"})");
  EXPECT_EQ(ids_in_use(*words, {}), pieces + 100);
}

TEST_F(Vocabularies, WithoutTokenizersTheSizesMustAgree) {
  model::ModelInfo target;
  model::ModelInfo drafter;
  target.vocabulary = 100;
  drafter.vocabulary = 90;
  Problems problems;
  compare_vocabularies(target, drafter, nullptr, nullptr, problems);
  ASSERT_EQ(problems.list().size(), 1u);
  EXPECT_THAT(to_string(problems.list().front()), ::testing::AllOf(HasSubstr("100 ids"), HasSubstr("90 ids")));
}

TEST_F(Vocabularies, IdsThatTheTokenizerLacksPrintNothing) {
  const auto words = tokenizer("a.model", {"abc abd acd", "bcd abc"});
  const auto pieces = words->encode("abc bcd");
  std::vector<int64_t> ids(pieces.begin(), pieces.end());
  ids.insert(ids.begin(), words->vocabulary());
  ids.push_back(-1);
  ids.push_back(32127);
  EXPECT_EQ(text_of_known(*words, ids), "abc bcd");
}

TEST_F(Vocabularies, IdsInUseAreThePiecesAndEveryEos) {
  const auto words = tokenizer("a.model", {"abc abd acd", "bcd abc"});
  const int64_t pieces = words->vocabulary();
  EXPECT_EQ(ids_in_use(*words, std::vector<int64_t>{1}), pieces);
  EXPECT_EQ(ids_in_use(*words, std::vector<int64_t>{1, pieces + 4}), pieces + 5);
}

TEST(Padding, IsMaskedInPlaceAndOnlyWhereThereIsAny) {
  const auto logits = at::arange(12, at::kFloat).view({1, 2, 6});
  for (const int64_t ids : {6, 7}) {
    const auto same = logits.clone();
    mask_padding(same, ids);
    EXPECT_TRUE(same.equal(logits));
  }
  const auto masked = logits.clone();
  mask_padding(masked, 4);
  EXPECT_TRUE(masked.narrow(2, 0, 4).equal(logits.narrow(2, 0, 4)));
  EXPECT_TRUE(masked.narrow(2, 4, 2).isneginf().all().item<bool>());
}

TEST(Padding, StandsForIdsThatAModelLacks) {
  model::ModelInfo info;
  info.vocabulary = 5;
  info.pad = 3;
  const std::vector<std::vector<int64_t>> lists = {{4, 5, 0}, {}, {9}};
  EXPECT_EQ(mask_unknown_ids(info, lists), (std::vector<std::vector<int64_t>>{{4, 3, 0}, {}, {3}}));
}

TEST(PaddingIds, AreRuledOutInEveryRowAndType) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor logits = at::zeros({2, 3, 5}, type);
    mask_padding(logits, 3);
    EXPECT_TRUE(logits.narrow(2, 0, 3).eq(0).all().item<bool>());
    EXPECT_TRUE(logits.narrow(2, 3, 2).isneginf().all().item<bool>());
    mask_padding(logits, 5);
  }
  const at::Tensor apart = at::zeros({2, 2, 5}, at::kFloat);
  mask_padding(apart.select(1, 0), 4);  // not contiguous
  EXPECT_EQ(apart.isneginf().sum().item<int64_t>(), 2);
  EXPECT_TRUE(apart.select(1, 1).eq(0).all().item<bool>());
}

}  // namespace
}  // namespace draftsmith::infer
