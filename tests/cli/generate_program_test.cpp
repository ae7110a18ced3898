// `draftsmith generate` as a user runs it: streaming, samples, prompts beyond the context, drafters of other families,
// languages of translation models.
#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/child_process.h"
#include "base/files.h"
#include "base/json.h"
#include "data/tokenizers/tokenizer.h"
#include "model/families/family.h"
#include "model/files/checkpoint.h"
#include "tests/cli/program.h"
#include "tests/data/small_tokenizer.h"
#include "tests/data/tokenizers/tokenizer_files.h"
#include "tests/support/families.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/paths.h"

namespace draftsmith::test {
namespace {

namespace fs = std::filesystem;

// Random weights over a byte-level tokenizer: its text is full of broken characters.
class GenerateProgram : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryDirectory>();
    write_text(*folder_ / "tokenizer.json", data::byte_level_json({"h e", "Ã ©", "æ Ĺ"}).dump());
    model::TransformerConfig config = model::tiny_llama(1);
    config.vocabulary = 264;  // the tokenizer's 259 and padding
    config.heads = config.kv_heads = 3;
    config.max_positions = 24;
    config.tied_head = false;
    config.eos = {255};
    model::SaveOptions save{.tokenizer = *folder_ / "tokenizer.json"};
    save_model(*folder_ / "model", model::TransformerModel(config, 3), save);
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static ProgramResult generate(const std::vector<std::string>& more, const std::string& input) {
    return run_program(joined({"generate", "--model", *folder_ / "model"}, more), input);
  }

  // The model's directory, changed by `damage`.
  static fs::path damaged(const std::string& name, const std::function<void(const fs::path&)>& damage) {
    const fs::path copy = *folder_ / name;
    fs::copy(*folder_ / "model", copy);
    damage(copy);
    return copy;
  }

  static inline std::unique_ptr<TemporaryDirectory> folder_;
};

TEST_F(GenerateProgram, StreamingGivesTheSameTextAsLinesDo) {
  const std::string input = "he said\nthere\nhello\n";
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--method", "sample"}, {"--method", "greedy", "--ids"}}) {
    std::vector<std::string> live = options;
    live.emplace_back("--stream");
    const std::string lines_in = options.back() == "--ids" ? "104 101\n32\n104\n" : input;
    const ProgramResult whole = generate(options, lines_in);
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    EXPECT_EQ(generate(live, lines_in).out, whole.out);
    EXPECT_GT(whole.out.size(), 20u);
  }
  EXPECT_THAT(generate({"--stream", "--batch-size", "2"}, input).err,
              HasSubstr("2 lines together, 1 outputs for each"));
}

TEST_F(GenerateProgram, JsonTextIsWhatTheIdsDecodeTo) {
  const ProgramResult result =
      generate({"--json", "--method", "sample", "--temperature", "5", "--num-samples", "100"}, "he\n");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto tokenizer = data::load_tokenizer(*folder_ / "tokenizer.json");
  size_t breaks = 0;
  for (const std::string& object : lines_of(result.out)) {
    const auto line = nlohmann::json::parse(object);
    std::vector<int32_t> ids;
    for (const int32_t id : line.at("ids")) {
      if (id < tokenizer->vocabulary()) ids.push_back(id);
    }
    EXPECT_EQ(line.at("text").get<std::string>(), tokenizer->decode(ids));
    breaks += line.at("text").get<std::string>().find('\n') != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(breaks, 0U);
}

TEST_F(GenerateProgram, AUsersMessageIsReadInTheChatTemplate) {
  EXPECT_THAT(generate({"--chat"}, "he\n").err, HasSubstr("chat_template"));
  const fs::path chat = damaged("chat", [](const fs::path& directory) {
    write_text(directory / "chat_template.jinja", "<{{ messages[0].role }}: {{ messages[0].content }}>");
  });
  const ProgramResult answers = run_program({"generate", "--model", chat.string(), "--chat"}, "he\n{\"\n");
  EXPECT_EQ(answers.exit_code, 0) << answers.err;
  EXPECT_EQ(answers.out, generate({}, "<user: he>\n<user: {\">\n").out);
  EXPECT_EQ(generate({"--chat", "--ids"}, "1\n").exit_code, 2);
}

TEST_F(GenerateProgram, JsonIsNotStreamed) {
  EXPECT_THAT(generate({"--stream", "--json"}, "he\n").err, HasSubstr("--stream prints text"));
}

// In half precision the embedding of "z" overflows, so that logits after it are no numbers.
TEST_F(GenerateProgram, ALineThatFailsLeavesTheOthersAlone) {
  const fs::path directory = *folder_ / "overflowing";
  const auto tokenizer = data::load_tokenizer(*folder_ / "tokenizer.json");
  const std::unique_ptr<model::TransformerModel> loaded = model::load_model(*folder_ / "model", {.pack = false});
  at::Tensor embedding = loaded->parameters().at("embedding.weight");
  embedding.detach().select(0, tokenizer->encode("z").front()).fill_(1e6);
  model::SaveOptions save{.tokenizer = *folder_ / "tokenizer.json"};
  save_model(directory, *loaded, save);
  const auto run = [&](const std::vector<std::string>& more) {
    return run_program(joined({"generate", "--model", directory, "--dtype", "fp16", "--max-new-tokens", "4"}, more),
                       "he\nz\nhe\n");
  };
  for (const std::string batch : {"1", "3"}) {
    const ProgramResult text = run({"--no-stream", "--batch-size", batch});
    EXPECT_EQ(text.exit_code, 1) << text.err;
    EXPECT_THAT(text.err, HasSubstr("input 2, new token 1"));
    const std::string line = text.out.substr(0, text.out.find('\n') + 1);
    EXPECT_EQ(text.out, line + "\n" + line);
    EXPECT_EQ(run({"--stream"}).out, text.out);
    const ProgramResult json = run({"--json", "--batch-size", batch});
    EXPECT_EQ(json.exit_code, 1);
    std::vector<nlohmann::json> lines;
    for (const std::string& object : lines_of(json.out)) lines.push_back(nlohmann::json::parse(object));
    ASSERT_EQ(lines.size(), 3U);
    EXPECT_THAT(lines[1].at("error").get<std::string>(), HasSubstr("input 2"));
    EXPECT_FALSE(lines[1].contains("ids") || lines[1].contains("text"));
    EXPECT_FALSE(lines[0].contains("error") || lines[2].contains("error"));
  }
}

// The second new token fails, likewise: what is shown of the first was streamed.
TEST_F(GenerateProgram, TextIsStreamedToATerminal) {
  const std::string first = lines_of(generate({"--ids", "--max-new-tokens", "1"}, "104 101\n").out).at(0);
  const std::unique_ptr<model::TransformerModel> loaded = model::load_model(*folder_ / "model", {.pack = false});
  loaded->parameters().at("embedding.weight").detach().select(0, std::stoll(first)).fill_(1e6);
  save_model(*folder_ / "second", *loaded);
  write_text(*folder_ / "ids", "104 101\n");
  const auto shown = [&](const std::string& more) {
    return run_shell(
               fmt::format("script -qec '{} generate --model {} --input {} --ids --dtype fp16 {}' /dev/null",
                           draftsmith_binary(), (*folder_ / "second").string(), (*folder_ / "ids").string(), more),
               "")
        .output;
  };
  EXPECT_THAT(shown(""), HasSubstr(first + "\r\n"));
  EXPECT_THAT(shown("--no-stream"), AllOf(HasSubstr("input 1, new token 2"), Not(HasSubstr(first + "\r\n"))));
}

TEST_F(GenerateProgram, PromptsBeyondTheContextAreRefusedCutOrSkipped) {
  const std::string input = "short\n" + std::string(40, 'x') + "\n";
  const ProgramResult refused = generate({"--max-new-tokens", "4"}, input);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(refused.out, "");  // nothing before all prompts are known to fit
  EXPECT_THAT(refused.err, AllOf(HasSubstr("input 2: the prompt leaves no room"), HasSubstr("fewer than 24 tokens"),
                                 HasSubstr("40 tokens")));

  std::string long_line;
  for (int i = 0; i < 40; ++i) long_line += "7 ";
  const ProgramResult skipped =
      generate({"--max-new-tokens", "4", "--ids", "--long-prompts", "skip"}, "104 101\n" + long_line + "\n");
  EXPECT_EQ(skipped.exit_code, 0) << skipped.err;
  EXPECT_TRUE(skipped.out.ends_with("\n\n")) << skipped.out;
  EXPECT_THAT(skipped.err, HasSubstr("1 of 2 prompts fill the context and are skipped"));

  const ProgramResult cut = generate({"--max-new-tokens", "4", "--long-prompts", "truncate-left"}, input);
  EXPECT_EQ(cut.exit_code, 0) << cut.err;
  EXPECT_THAT(cut.err, HasSubstr("lose their beginning to fit the context (the first: input 2, 20 tokens dropped)"));
  EXPECT_THAT(generate({"--max-new-tokens", "30"}, "twelve bytes\n").err,
              AllOf(HasSubstr("leave room in the context for fewer new tokens than wanted"),
                    HasSubstr("(the first: input 1, 12 of 30)")));
}

void change(const fs::path& file, const std::function<void(nlohmann::json&)>& edit) {
  nlohmann::json root = load_json(file);
  edit(root);
  write_json(file, root);
}

// Qwen3 has a token more than Qwen2.5, and models of one tokenizer pad its ids in their own ways.
TEST_F(GenerateProgram, DraftersOfOtherFamiliesAndPaddingsLeaveOutputsAsTheyAre) {
  nlohmann::json newer = data::byte_level_json({"h e", "Ã ©", "æ Ĺ"});
  newer["added_tokens"].push_back(data::added_token("<think>", 259));
  fs::create_directories(*folder_ / "newer");
  write_text(*folder_ / "newer/tokenizer.json", newer.dump());
  const auto save = [](const std::string& family, int64_t vocabulary, const std::string& tokenizer) {
    model::TransformerConfig config = model::tiny_of(model::families().at(family));
    config.vocabulary = vocabulary;
    config.eos = {255};
    const fs::path directory = *folder_ / (family + std::to_string(vocabulary));
    model::SaveOptions options{.tokenizer = *folder_ / tokenizer};
    save_model(directory, model::TransformerModel(config, static_cast<uint64_t>(vocabulary)), options);
    return directory.string();
  };
  const std::string qwen3 = save("qwen3", 272, "newer/tokenizer.json"), qwen2 = save("qwen2", 264, "tokenizer.json");
  const std::string llama = save("llama", 259, "tokenizer.json"), smollm2 = save("llama", 320, "tokenizer.json");
  const std::vector<std::pair<std::string, std::string>> pairs = {{qwen3, qwen2},   {qwen2, qwen3},   {qwen2, llama},
                                                                  {smollm2, llama}, {llama, smollm2}, {smollm2, qwen3}};
  for (const auto& [target, drafter] : pairs) {
    const auto outputs = [&](std::vector<std::string> more) {
      more.insert(more.begin(), {"generate", "--model", target, "--max-new-tokens", "20"});
      const ProgramResult result = run_program(more, "the cat\nhe\n");
      EXPECT_EQ(result.exit_code, 0) << result.err;
      return result.out;
    };
    const std::string alone = outputs({"--method", "greedy"});
    EXPECT_GT(alone.size(), 10u);
    EXPECT_EQ(outputs({"--method", "assisted", "--drafter", drafter}), alone) << target << " " << drafter;
  }
  fs::create_directories(*folder_ / "other");
  write_text(*folder_ / "other/tokenizer.json", data::byte_level_json({"h e", "h o", "æ Ĺ"}).dump());
  const std::string other = save("granite", 259, "other/tokenizer.json");
  const ProgramResult refused = run_program(
      {"generate", "--model", qwen3, "--method", "assisted", "--drafter", other, "--max-new-tokens", "2"}, "he\n");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("granite259"), HasSubstr("qwen3272"), HasSubstr("different pieces"),
                                 HasSubstr("id 257 is 'ho'")));
}

TEST_F(GenerateProgram, BadDirectoriesAreRefusedByName) {
  const auto error = [&](const std::string& name, const std::function<void(const fs::path&)>& damage) {
    const ProgramResult result = run_program({"generate", "--model", damaged(name, damage).string()}, "he\n");
    EXPECT_EQ(result.exit_code, 2) << name;
    EXPECT_EQ(result.out, "") << name;
    return result.err;
  };
  EXPECT_THAT(error("architecture",
                    [](const fs::path& d) {
                      change(d / "config.json", [](auto& root) { root["architectures"] = {"MambaForCausalLM"}; });
                    }),
              AllOf(HasSubstr("MambaForCausalLM"), HasSubstr("LlamaForCausalLM"), HasSubstr("BloomForCausalLM")));
  EXPECT_THAT(error("tokenizer",
                    [](const fs::path& d) {
                      change(d / "tokenizer.json", [](auto& root) {
                        for (int i = 0; i < 8; ++i) root["model"]["vocab"]["more" + std::to_string(i)] = 259 + i;
                      });
                    }),
              AllOf(HasSubstr("the tokenizer has more ids than the model has embeddings"), HasSubstr("267")));
  EXPECT_THAT(error("weights", [&](const fs::path& d) { fs::remove(d / "model.safetensors"); }),
              HasSubstr("model.safetensors"));
}

TEST_F(GenerateProgram, AHeadUnlikeTheEmbeddingItIsTiedToIsUsedWithAWarning) {
  const fs::path directory = damaged("tied", [](const fs::path& d) {
    change(d / "config.json", [](auto& root) { root["tie_word_embeddings"] = true; });
  });
  const std::vector<std::string> more = {"--ids", "--dtype", "fp64"};
  const ProgramResult result = run_program(joined({"generate", "--model", directory}, more), "104 101\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("'lm_head.weight': differs from the embedding"));
  EXPECT_EQ(result.out, generate(more, "104 101\n").out);
}

// A family of translation models as its directories are, around one small SentencePiece model.
struct Translator {
  std::string family, file, tokenizer_class;  // `file` has the pieces
  data::Languages languages;                  // without a source language sources name the target's
};

void save_translator(const Translator& translator, const fs::path& directory) {
  const auto pieces = data::small_tokenizer(directory / translator.file);
  nlohmann::json settings = {{"tokenizer_class", translator.tokenizer_class}};
  model::TransformerConfig config = model::tiny_of(model::families().at(translator.family));
  config.vocabulary = 160;  // T5's sentinels, too
  const auto& [source, target] = translator.languages;
  if (source.empty()) {  // MADLAD's language is a user-defined piece
    write_text(directory / translator.file,
               read_file(directory / translator.file) + std::string("\x0a\x0e\x0a\x05<2fr>\x15\0\0\0\0\x18\x04", 16));
  } else {
    const std::string around = translator.tokenizer_class == "M2M100Tokenizer" ? "__" : "";
    settings["additional_special_tokens"] = nlohmann::json::array({around + source + around, around + target + around});
    config.eos = {config.decoder_start = 2};
    config.pad = 1;
    if (config.sinusoids_reach_end) config.position_offset = config.pad + 1;
    nlohmann::json numbers = {{"<s>", 0}, {"<pad>", 1}, {"</s>", 2}, {"<unk>", 3}};
    for (int32_t id = 3; id < pieces->vocabulary(); ++id) numbers.emplace(pieces->piece(id), numbers.size());
    if (!around.empty()) write_text(directory / "vocab.json", numbers.dump());
  }
  write_text(directory / "tokenizer_config.json", settings.dump());
  model::write_model_files(directory, model::TransformerModel(config, 5));
}

// Returns what `generate` writes after a line: samples, unless `more` says otherwise.
nlohmann::json written(const fs::path& directory, const data::Languages& languages, const std::string& line,
                       const std::vector<std::string>& more = {}) {
  const bool has_method = std::ranges::find(more, "--method") != more.end();
  std::vector<std::string> arguments = {"generate", "--model", directory.string(), "--json"};
  if (!has_method) arguments.insert(arguments.end(), {"--method", "sample", "--temperature", "5"});
  arguments.insert(arguments.end(), {"--input", write_text(directory / "line", line + "\n").string()});
  arguments.insert(arguments.end(), {"--source-language", languages.source_language, "--max-new-tokens", "12"});
  arguments.insert(arguments.end(), {"--target-language", languages.target_language});
  const ProgramResult result = run_here(joined(arguments, more));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return nlohmann::json::parse(result.out).at("ids");
}

TEST(GenerateTranslations, LanguagesStandAroundTextsAndAreForced) {
  const std::string text = "the cat sings", bpe = "sentencepiece.bpe.model";
  const std::vector<Translator> translators = {{"m2m_100", bpe, "M2M100Tokenizer", {"de", "fr"}},
                                               {"m2m_100", bpe, "NllbTokenizer", {"deu_Latn", "fra_Latn"}},
                                               {"mbart", bpe, "MBart50Tokenizer", {"de_DE", "fr_XX"}},
                                               {"t5", "spiece.model", "T5Tokenizer", {"", "fr"}},
                                               {"umt5", "spiece.model", "T5Tokenizer", {"", "fr"}}};
  for (const Translator& translator : translators) {
    SCOPED_TRACE(translator.family + " " + translator.tokenizer_class);
    const TemporaryDirectory folder;
    save_translator(translator, folder.path());
    const auto& [source, target] = translator.languages;
    const nlohmann::json french = written(folder.path(), {source, target}, text);
    EXPECT_NE(written(folder.path(), {source, source}, text), french);
    const auto tokenizer = data::load_tokenizer(folder.path(), translator.languages);
    const data::LanguageFrames frames = tokenizer->frames();
    if (source.empty()) {
      EXPECT_EQ(written(folder.path(), {}, "<2fr> " + text), french);
    } else {
      EXPECT_EQ(french[0].get<int32_t>(), frames.forced_bos.value());
      EXPECT_NE(written(folder.path(), {target, target}, text), french);
    }
    std::string ids;
    for (const auto& part : {frames.source.before, tokenizer->encode(text), frames.source.after}) {
      for (const int32_t id : part) ids += std::to_string(id) + " ";
    }
    EXPECT_EQ(written(folder.path(), {source, target}, ids, {"--ids"}), french);
    EXPECT_EQ(written(folder.path(), {source, target}, text, {"--method", "assisted", "--drafter", "exit:1"}),
              written(folder.path(), {source, target}, text, {"--method", "greedy"}));
  }
}

}  // namespace
}  // namespace draftsmith::test
