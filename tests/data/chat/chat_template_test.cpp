#include "data/chat/chat_template.h"

#include <csignal>

#include <gmock/gmock.h>

#include "base/files.h"
#include "data/corpus/prepare.h"
#include "data/text/readers.h"
#include "tests/data/small_tokenizer.h"
#include "tests/data/tokenizers/tokenizer_files.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/scoped_variable.h"

namespace draftsmith::data {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::ElementsAreArray;

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

TEST(ChatTemplates, ToolsDocumentsAndReasoningReachTheTemplate) {
  const std::string text =
      "{{ tools|tojson }}{{ documents[0].title if documents }} {{ messages[0].reasoning_content }}"
      "{{ messages[0].content is defined }}";
  const ordered_json messages = ordered_json::parse(R"([{"role": "assistant", "content": null, "thinking": "Hm"}])");
  EXPECT_EQ(render(text, messages), "null HmFalse");
  EXPECT_EQ(render(text, {{"messages", messages},
                          {"tools", {{{"name", "f"}, {"a", 1}}}},
                          {"documents", ordered_json::parse(R"([{"title": "T"}])")}}),
            R"([{"name": "f", "a": 1}]T HmFalse)");
}

TEST(ChatTemplates, ErrorsNameTheTemplatesLine) {
  EXPECT_THAT(render_error("a\n{% nothing %}"), AllOf(HasSubstr("chat.jinja:2"), HasSubstr("unknown tag 'nothing'")));
  EXPECT_THAT(render_error("a\n\n{{ nobody.name }}"),
              AllOf(HasSubstr("chat.jinja:3"), HasSubstr("'nobody' is undefined")));
  EXPECT_THAT(render_error("\n{{ raise_exception('roles must alternate') }}"),
              AllOf(HasSubstr("chat.jinja:2"), HasSubstr("it refuses these messages: roles must alternate")));
  EXPECT_THAT(render_error("\n{{ 1 // 0 }}"), AllOf(HasSubstr("chat.jinja:2"), HasSubstr("ZeroDivisionError")));
  EXPECT_THAT(render_error("{{ messages.append(1) }}"), HasSubstr("chat.jinja:1"));
  EXPECT_THAT(render_error("{{ ''.__class__.x }}"), HasSubstr("unsafe"));
  EXPECT_THAT(render_error("{% include '/etc/passwd' %}"), HasSubstr("chat.jinja:1"));
  EXPECT_THAT(render_error("{{ 'x' * 10**10 }}"), HasSubstr("MemoryError"));
  EXPECT_THAT(render_error("{{ '\\ud800' }}"), HasSubstr("UnicodeEncodeError"));
  EXPECT_THAT(render_error("\xFF"), HasSubstr("no UTF-8"));
  for (const char* text : {"{{ 'a", "{% if true %}", "{{ a", "{# a", "{% endif %}", "{{ 1 + }}", "{{ a b }}"}) {
    EXPECT_THAT(render_error(text), HasSubstr("chat.jinja:1")) << text;
  }
  const std::string deep = std::string(5000, '(') + "1" + std::string(5000, ')');
  EXPECT_THAT(render_error("{{ " + deep + " }}"), HasSubstr("RecursionError"));
}

TEST(ChatTemplates, AConversationOfManyMegabytesPasses) {
  const std::string text(5'000'000, 'x');
  EXPECT_EQ(render("{{ messages[0].content }}", conversation({text})), text);
}

TEST(ChatTemplates, OnesWithoutEndAreEndedAndLaterOnesRendered) {
  constexpr const char* kLoop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
  ChatTemplate chat("{% if messages[0].content == 'loop' %}\n" + std::string(kLoop) + "{% endif %}done",
                    ordered_json::object(), "chat.jinja", 0.5);
  EXPECT_THAT(error_of([&] { chat.render(conversation({"loop"}), false); }),
              AllOf(HasSubstr("chat.jinja:2"), HasSubstr("longer than 0.5 seconds")));
  EXPECT_EQ(chat.render(conversation({"Hi"}), false), "done");
}

TEST(ChatTemplates, AMissingPythonOrJinjaIsNamed) {
  TemporaryDirectory folder;
  const std::string script = (folder / "python").string();
  const auto error_with = [&](const std::string& text) {
    write_text(script, "#!/bin/sh\n" + text + "\n");
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    const ScopedVariable chosen("DRAFTSMITH_PYTHON", script);
    return render_error(kChatMl);
  };
  {
    const ScopedVariable none("DRAFTSMITH_PYTHON", "/no/such/python");
    EXPECT_THAT(render_error(kChatMl), AllOf(HasSubstr("model/chat.jinja"), HasSubstr("/no/such/python: No such file"),
                                             HasSubstr("DRAFTSMITH_PYTHON")));
  }
  EXPECT_THAT(error_with("exec python3 -I -S \"$@\""),
              AllOf(HasSubstr("No module named 'jinja2'"), HasSubstr("install")));
  write_text(folder / "json.py", "raise SystemExit('a module of the working directory')");
  EXPECT_EQ(error_with("cd '" + folder.path().string() + "'; exec python3 \"$@\""), "no error");
  EXPECT_THAT(error_with("echo broken >&2; exit 3"), HasSubstr("exit code 3: broken"));
  EXPECT_THAT(error_with("kill -9 $$"), HasSubstr("signal 9"));
  EXPECT_THAT(error_with("exec cat"), HasSubstr("an answer that is none"));
}

TEST(ChatTemplates, TheProcessEndsWithItsTemplate) {
  TemporaryDirectory folder;
  const std::string script = (folder / "python").string();
  write_text(script, "#!/bin/sh\necho $$ >" + (folder / "id").string() + "\nexec python3 \"$@\"\n");
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  const ScopedVariable chosen("DRAFTSMITH_PYTHON", script);
  {
    ChatTemplate chat(kChatMl, ordered_json::object(), "chat.jinja");
    EXPECT_EQ(kill(std::stoi(read_file(folder / "id")), 0), 0);
  }
  EXPECT_NE(kill(std::stoi(read_file(folder / "id")), 0), 0);  // not even a zombie
}

TEST(ChatTemplates, EachAnswerContinuesThePromptBeforeIt) {
  ChatTemplate chat(kChatMl, ordered_json::object(), "chat.jinja");
  const auto replies = chat.replies(conversation({"a", "b", "c", "d"}));
  ASSERT_EQ(replies.size(), 2U);
  EXPECT_EQ(replies[0].reply, "b<|im_end|>\n");
  EXPECT_EQ(replies[1].prompt, chat.render(conversation({"a", "b", "c"}), true));
  EXPECT_EQ(replies[1].reply, "d<|im_end|>\n");
  ChatTemplate changing("{% for m in messages %}{{ messages|length }}{{ m.content }}{% endfor %}",
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
        "{\"bos_token\": {\"content\": \"<b>\"}, \"chat_template\": [{\"name\": 5}, {\"name\": \"default\", "
        "\"template\": \"{{ bos_token }}one\"}]}");
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
  TextInput input{.jsonl = folder_ / "chat.jsonl", .messages = "messages"};
  const auto stream = open_text(with_template_of(folder_.path(), input), {.empty = "drop"});
  const std::vector<Example> examples = read_all(*stream);
  ASSERT_EQ(examples.size(), 1U);
  EXPECT_EQ(examples[0].source, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_THAT(examples[0].targets, ElementsAre("b<|im_end|>\n"));
  EXPECT_EQ(stream->counts().at("dropped: empty"), 1);
  const auto asked = read_all(*open_text(with_template_of(folder_.path(), input), {}, /*prompts=*/true));
  ASSERT_EQ(asked.size(), 2U);
  EXPECT_EQ(asked[0].source, examples[0].source);
  EXPECT_THAT(asked[1].targets, ElementsAre(""));
  const auto strict = open_text(with_template_of(folder_.path(), input), {});
  EXPECT_THAT(error_of([&] { read_all(*strict); }),
              AllOf(HasSubstr("chat.jsonl:2"), HasSubstr("message of the assistant")));
  write("chat.jsonl", "{\"messages\": [{\"role\": \"user\"}]}\n");
  EXPECT_THAT(error_of([&] { read_conversations(input.jsonl, "messages"); }), HasSubstr("role and content"));
  write("chat.jsonl", R"({"messages": [{"role": "user", "content": "a"}], "tools": ["f"]})");
  EXPECT_THAT(error_of([&] { read_conversations(input.jsonl, "messages"); }), HasSubstr("tools cannot be read"));
}

TEST_F(ChatFiles, ToolsAndCallsOfConversationsAreRead) {
  write("chat.jsonl", R"({"talk": [{"role": "assistant", "tool_calls": [{}]}], "tools": [{"name": "f"}], "more": 1})");
  const auto read = read_conversations(folder_ / "chat.jsonl", "talk");
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].dump(), R"({"messages":[{"role":"assistant","tool_calls":[{}]}],"tools":[{"name":"f"}]})");
}

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
  const std::vector<int32_t> ends = reply_ends(*tokenizer_);
  EXPECT_THAT(ends, ElementsAre(tokenizer_->eos()));
  const auto beside = tokenizer_->file().parent_path() / "generation_config.json";
  write_file_atomic(beside, std::string(R"({"eos_token_id": [3, 1000000, -1, "a"]})"));
  EXPECT_THAT(reply_ends(*tokenizer_), ElementsAre(tokenizer_->eos(), 3));
  std::filesystem::remove(beside);
  std::vector<int32_t> wanted = ids("the cat");
  wanted.push_back(tokenizer_->eos());
  EXPECT_THAT(encode_reply(*tokenizer_, "", "the cat</s>\n", ends), ElementsAreArray(wanted));
  EXPECT_THAT(encode_reply(*tokenizer_, "", "the cat", ends), ElementsAreArray(wanted));
  const std::vector<int32_t> other = {tokenizer_->eos(), wanted.front()};  // as of a turn
  EXPECT_THAT(encode_reply(*tokenizer_, "", "the cat</s>\n", other), ElementsAre(wanted.front()));
}

// As the model writes them: a blank that stands before a text of its own is not there.
TEST_F(ChatTokens, RepliesAreTheIdsBehindTheirPrompt) {
  const auto metaspace = load_json_tokenizer(byte_fallback_json({"▁", "a", "b"}, {"▁ a"}));
  EXPECT_THAT(encode_chat(*metaspace, "<s>a"), ElementsAreArray(metaspace->encode("<s>a"))) << "no new start";
  EXPECT_THAT(encode_reply(*metaspace, "b\n", "a</s>", reply_ends(*metaspace)), ElementsAre(260, metaspace->eos()));
}

TEST_F(ChatTokens, OnlyTheAssistantsWordsAreTargets) {
  const Corpus corpus = prepare();
  ASSERT_EQ(corpus.size(), 2);
  EXPECT_THAT(corpus.source(1), ElementsAreArray(encode_chat(*tokenizer_, "the cat sees</s>\nthe dog ")));
  EXPECT_THAT(corpus.target(1),
              ElementsAreArray(encode_reply(*tokenizer_, "the dog ", "sings", reply_ends(*tokenizer_))));
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
