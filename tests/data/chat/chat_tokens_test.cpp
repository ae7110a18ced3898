#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "data/chat/chat_template.h"
#include "data/corpus/prepare.h"
#include "data/datasets/datasets.h"
#include "data/text/readers.h"
#include "tests/data/small_tokenizer.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::data {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;

class ChatTokens : public testing::Test {
 protected:
  ChatTokens() : tokenizer_(small_tokenizer(folder_ / "spiece.model")) {
    write_text(
        folder_ / "chat_template.jinja",
        "{% for m in messages %}{% if m.role == 'user' %}the {{ m.content }} {% else %}{{ m.content }}{{ '</s>\n' }}"
        "{% endif %}{% endfor %}");
    write_text(
        folder_ / "chat.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"cat\"}, {\"role\": \"assistant\", \"content\": \"sees\"},"
        "{\"role\": \"user\", \"content\": \"dog\"}, {\"role\": \"assistant\", \"content\": \"sings\"}]}\n");
    input_.jsonl = folder_ / "chat.jsonl";
    input_.messages = "messages";
  }

  Corpus prepare(PrepareOptions options = {}) {
    options.prompts = true;
    const auto stream = open_text(with_template_of(folder_ / "spiece.model", input_), {});
    report_ = prepare_corpus(*stream, *tokenizer_, options, folder_ / "chat.h5");
    return Corpus(folder_ / "chat.h5");
  }
  std::vector<int32_t> ids(const std::string& text) const { return tokenizer_->encode(text); }

  TemporaryDirectory folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
  TextInput input_;
  PrepareReport report_;
};

TEST_F(ChatTokens, TextsOfSpecialTokensBecomeTheirIds) {
  std::vector<int32_t> wanted = ids("the cat");
  wanted.push_back(tokenizer_->eos());
  const std::vector<int32_t> rest = ids("a dog");
  wanted.insert(wanted.end(), rest.begin(), rest.end());
  EXPECT_THAT(encode_chat(*tokenizer_, "the cat</s>a dog"), ElementsAreArray(wanted));
  EXPECT_TRUE(encode_chat(*tokenizer_, "").empty());
}

TEST_F(ChatTokens, RepliesEndInTheFirstEndOfText) {
  std::vector<int32_t> wanted = ids("the cat");
  wanted.push_back(tokenizer_->eos());
  EXPECT_THAT(encode_reply(*tokenizer_, "the cat</s>\n"), ElementsAreArray(wanted));
  EXPECT_THAT(encode_reply(*tokenizer_, "the cat"), ElementsAreArray(wanted));
}

TEST_F(ChatTokens, OnlyTheAssistantsWordsAreTargets) {
  const Corpus corpus = prepare();
  ASSERT_EQ(corpus.size(), 2);
  EXPECT_THAT(corpus.source(1), ElementsAreArray(encode_chat(*tokenizer_, "the cat sees</s>\nthe dog ")));
  EXPECT_THAT(corpus.target(1), ElementsAreArray(encode_reply(*tokenizer_, "sings")));
  EXPECT_TRUE(continues_prompts(corpus.info()));
  EXPECT_EQ(corpus.info().provenance.at("text_file_1"), "chat_template.jinja");
}

TEST_F(ChatTokens, PromptsAreDroppedButNeverCut) {
  EXPECT_THAT(error_of([this] { prepare({.max_source = 3, .too_long = "truncate"}); }), HasSubstr("is not cut"));
  const int64_t kept = prepare({.max_source = 5, .too_long = "drop"}).size();
  EXPECT_EQ(kept + report_.counts["dropped: too long"], 2);
}

}  // namespace
}  // namespace draftsmith::data
