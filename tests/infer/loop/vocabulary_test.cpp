// Vocabularies of two models, and ids that a model or its tokenizer lacks.
#include <gmock/gmock.h>

#include "base/files.h"
#include "data/tokenizers/sentencepiece.h"
#include "data/tokenizers/tokenizer.h"
#include "infer/loop/processors.h"
#include "tests/data/tokenizers/tokenizer_files.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace draftsmith::infer {
namespace {

class Vocabularies : public ::testing::Test {
 protected:
  std::unique_ptr<data::Tokenizer> tokenizer(const std::string& name,
                                             const std::vector<std::string>& lines = {"abc abd acd", "bcd abc"}) const {
    const auto file = folder_ / name;
    data::train_tokenizer(lines, {.type = "bpe", .vocabulary = 24, .exact_size = false}, file);
    return data::load_tokenizer(file);
  }

  // What is wrong with a target and a drafter of these sizes.
  static std::string difference(int64_t target_size, const data::Tokenizer* target, int64_t drafter_size,
                                const data::Tokenizer* drafter) {
    const model::ModelInfo large{.name = "large", .vocabulary = target_size};
    const model::ModelInfo small{.name = "small", .vocabulary = drafter_size};
    Problems problems;
    compare_vocabularies(large, small, target, drafter, problems);
    return problems.empty() ? "" : to_string(problems.list().front());
  }

  TemporaryDirectory folder_;
};

TEST_F(Vocabularies, TheSameTokenizerFitsWhateverTheModelsPaddingAndOthersAreNamed) {
  const auto words = tokenizer("a.model");
  const auto copy = tokenizer("b.model");
  const auto others = tokenizer("c.model", {"xyz xyw xzw", "yzw xyz"});
  EXPECT_EQ(difference(128, words.get(), 64, copy.get()), "");
  EXPECT_THAT(difference(64, words.get(), 64, others.get()),
              AllOf(HasSubstr("different pieces"), HasSubstr("id 3 is")));
  EXPECT_THAT(difference(100, nullptr, 90, nullptr), AllOf(HasSubstr("100 ids"), HasSubstr("90 ids")));
}

// Qwen3's tokenizer is Qwen2.5's with four more added tokens; the models pad to 151,936 or 152,064 ids.
TEST_F(Vocabularies, FurtherAddedTokensFitAndOtherPiecesAreNamedWithTheirIds) {
  const auto made = [](const std::vector<std::string>& merges, const std::vector<std::string>& added) {
    nlohmann::json json = data::byte_level_json(merges);
    for (const std::string& token : added) {
      const auto id = static_cast<int64_t>(256 + merges.size() + json["added_tokens"].size());
      json["added_tokens"].push_back(data::added_token(token, id));
    }
    return data::load_json_tokenizer(json);
  };
  const auto older = made({"a b"}, {"<end>", "<fim>"});
  const auto newer = made({"a b"}, {"<end>", "<fim>", "<think>"});
  const auto other = made({"a b"}, {"<end>", "<pad>", "<think>"});
  const auto longer = made({"a b", "ab c", "ab d", "ab e"}, {});
  EXPECT_EQ(difference(264, newer.get(), 288, older.get()), "");
  EXPECT_EQ(difference(288, older.get(), 264, newer.get()), "");
  EXPECT_THAT(difference(264, newer.get(), 264, other.get()),
              AllOf(HasSubstr("drafter small of target large"), HasSubstr("260 pieces, id 258 is '<fim>'"),
                    HasSubstr("id 258 is '<pad>'")));
  EXPECT_THAT(difference(264, longer.get(), 264, made({"a b"}, {}).get()),
              AllOf(HasSubstr("260 pieces, id 257 is 'abc'"), HasSubstr("257 pieces, id 257 is none")));
}

TEST_F(Vocabularies, SentinelsAndAddedTokensAreNoPadding) {
  const int64_t pieces = tokenizer("spiece.model")->vocabulary();
  const auto in_use = [&](const std::string& json, const std::vector<int64_t>& eos = {}) {
    write_file_atomic(folder_ / "tokenizer_config.json", json);
    return ids_in_use(*data::load_tokenizer(folder_ / "spiece.model"), eos);
  };
  EXPECT_EQ(in_use("{}"), pieces);
  EXPECT_EQ(in_use(R"({"tokenizer_class": "T5Tokenizer"})"), pieces + 100);
  EXPECT_EQ(in_use(R"({"tokenizer_class": "T5Tokenizer", "extra_ids": 0})"), pieces);
  EXPECT_EQ(in_use(R"({"tokenizer_class": "T5Tokenizer", "extra_ids": 3})"), pieces + 3);
  const std::string id = std::to_string(pieces + 5);
  EXPECT_EQ(in_use(R"({"tokenizer_class": "LlamaTokenizer", "added_tokens_decoder": {")" + id +
                   R"(": {"content": "<end>", "special": true}}})"),
            pieces + 6);
  write_file_atomic(folder_ / "config.json", R"({"model_type": "t5"})");
  EXPECT_EQ(in_use("{}"), pieces + 100);
  EXPECT_EQ(in_use("{}", {1, pieces + 104}), pieces + 105) << "every EOS is in use";
}

TEST_F(Vocabularies, IdsThatTheTokenizerLacksPrintNothing) {
  const auto words = tokenizer("a.model");
  const auto pieces = words->encode("abc bcd");
  std::vector<int64_t> ids(pieces.begin(), pieces.end());
  ids.insert(ids.begin(), words->vocabulary());
  ids.push_back(-1);
  ids.push_back(32127);
  EXPECT_EQ(text_of_known(*words, ids), "abc bcd");
}

TEST(Padding, StandsForIdsThatAModelLacks) {
  model::ModelInfo info{.vocabulary = 5, .pad = 3};
  const std::vector<std::vector<int64_t>> lists = {{4, 5, 0}, {}, {9}};
  EXPECT_EQ(mask_unknown_ids(info, lists), (std::vector<std::vector<int64_t>>{{4, 3, 0}, {}, {3}}));
}

TEST(Padding, AreRuledOutInEveryRowAndType) {
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
