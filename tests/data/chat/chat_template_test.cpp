#include "data/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "data/chat/chat_stream.h"
#include "data/text/readers.h"
#include "data/text/text_input.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::data {
namespace {

using nlohmann::ordered_json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

ordered_json conversation(const std::vector<std::string>& contents) {
  ordered_json messages = ordered_json::array();
  for (size_t i = 0; i < contents.size(); ++i) {
    messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", contents[i]}});
  }
  return messages;
}

std::string render(const std::string& text, const ordered_json& messages = conversation({"Hi"}), bool prompt = false) {
  return ChatTemplate(text, {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, "model/chat.jinja").render(messages, prompt);
}

std::string render_error(const std::string& text) {
  return error_of([&] { render(text); });
}

TEST(ChatTemplates, MessagesAreWrittenInTheirOrder) {
  EXPECT_EQ(render(kChatMl, conversation({"Hi", "Hello"})),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n");
  EXPECT_EQ(render(kChatMl, conversation({"Hi"}), true), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(render("{{ bos_token }}{{ messages[0]['content'] | trim }}{{ eos_token }}"), "<s>Hi</s>");
}

TEST(ChatTemplates, WhatTheyDoNotKnowIsNamedWithItsLine) {
  EXPECT_THAT(render_error("a\n{% macro f() %}{% endmacro %}"), AllOf(HasSubstr("chat.jinja:2"), HasSubstr("'macro'")));
  EXPECT_THAT(render_error("{{ messages | shuffle }}"), HasSubstr("filter 'shuffle' is unknown here"));
  EXPECT_THAT(render_error("{{ 'a'.center(3) }}"), HasSubstr("method 'center' is unknown here"));
  EXPECT_THAT(render_error("{{ strftime_now('%d') }}"), HasSubstr("function 'strftime_now' is unknown here"));
  EXPECT_THAT(render_error("{{ 1 is prime }}"), HasSubstr("test 'prime' is unknown here"));
  EXPECT_THAT(render_error("{{ nobody.name }}"), HasSubstr("'nobody', which is undefined, has no 'name'"));
  EXPECT_THAT(render_error("{{ raise_exception('roles must alternate') }}"), HasSubstr("roles must alternate"));
}

TEST(ChatTemplates, BrokenTextIsNoTemplate) {
  for (const char* text :
       {"{{ 'a", "{% if true %}", "{{ a", "{# a", "{% endif %}", "{{ 1 + }}", "{{ a b }}", "{{ [1, }}",
        "{% for x messages %}{% endfor %}", "{% else %}", "{{ $ }}", "{% set 1 = 2 %}", "{{ a['x }}"}) {
    EXPECT_THAT(render_error(text), HasSubstr("chat.jinja:1")) << text;
  }
  EXPECT_THAT(render_error(std::string("{{ ") + std::string(500, '(') + "1" + std::string(500, ')') + " }}"),
              HasSubstr("nested less deeply"));
}

TEST(ChatTemplates, EachAnswerContinuesThePromptBeforeIt) {
  const ChatTemplate chat(kChatMl, ordered_json::object(), "chat.jinja");
  const auto replies = chat.replies(conversation({"a", "b", "c", "d"}));
  ASSERT_EQ(replies.size(), 2U);
  EXPECT_EQ(replies[0].reply, "b<|im_end|>\n");
  EXPECT_EQ(replies[1].prompt, chat.render(conversation({"a", "b", "c"}), true));
  EXPECT_EQ(replies[1].reply, "d<|im_end|>\n");
  const ChatTemplate changing("{% for m in messages %}{{ messages|length }}{{ m.content }}{% endfor %}",
                              ordered_json::object(), "chat.jinja");
  EXPECT_THAT(error_of([&] {
                changing.replies(conversation({"a", "b"}));
              }),
              HasSubstr("does not continue its own prompt"));
}

class ChatFiles : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) { write_text(folder_ / name, text); }
  std::string template_error() {
    return error_of([this] { load_chat_template(folder_.path()); });
  }
  TemporaryDirectory folder_;
};

TEST_F(ChatFiles, TemplatesStandInTheTokenizersFiles) {
  EXPECT_THAT(template_error(), HasSubstr("there is no chat template"));
  write("tokenizer_config.json", "{\"bos_token\": {\"content\": \"<b>\"}, \"eos_token\": \"<e>\"}");
  EXPECT_THAT(template_error(), HasSubstr("a tokenizer_config.json without one"));
  write("tokenizer_config.json",
        "{\"bos_token\": {\"content\": \"<b>\"}, \"chat_template\": [{\"name\": \"default\", \"template\": "
        "\"{{ bos_token }}one\"}]}");
  EXPECT_EQ(load_chat_template(folder_.path()).render(conversation({"Hi"}), false), "<b>one");
  write("chat_template.jinja", "{{ bos_token }}two\n");
  EXPECT_EQ(load_chat_template(folder_ / "tokenizer.json").render(conversation({"Hi"}), false), "<b>two");
  // Older files have the special tokens in a file of their own.
  write("tokenizer_config.json", "{}");
  write("special_tokens_map.json", "{\"bos_token\": {\"content\": \"<m>\"}}");
  EXPECT_EQ(load_chat_template(folder_.path()).render(conversation({"Hi"}), false), "<m>two");
}

TEST_F(ChatFiles, ConversationsAreExamplesOfTheAssistantsWords) {
  write("chat_template.jinja", kChatMl);
  write("chat.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"c\"}]}\n");
  TextInput input;
  input.jsonl = folder_ / "chat.jsonl";
  input.messages = "messages";
  const auto stream = open_text(with_template_of(folder_.path(), input), {.empty = "drop"});
  const std::vector<Example> examples = read_all(*stream);
  ASSERT_EQ(examples.size(), 1U);
  EXPECT_EQ(examples[0].source, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_THAT(examples[0].targets, ElementsAre("b<|im_end|>\n"));
  EXPECT_EQ(stream->counts().dropped_empty, 1);
  const auto strict = open_text(with_template_of(folder_.path(), input), {});
  EXPECT_THAT(error_of([&] { read_all(*strict); }),
              AllOf(HasSubstr("chat.jsonl:2"), HasSubstr("message of the assistant")));
  write("chat.jsonl", "{\"messages\": [{\"role\": \"user\"}]}\n");
  EXPECT_THAT(error_of([&] { read_conversations(input.jsonl, "messages"); }), HasSubstr("role and content"));
}

}  // namespace
}  // namespace draftsmith::data
