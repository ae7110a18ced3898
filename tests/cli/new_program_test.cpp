// `draftsmith new`: the recipe that it writes is valid, and training runs it to the verdict; mistakes come first.
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "data/tokenizers/sentencepiece.h"
#include "data/tokenizers/tokenizer.h"
#include "model/files/checkpoint.h"
#include "tests/cli/program.h"
#include "tests/support/files.h"
#include "tests/support/models.h"

namespace draftsmith {
namespace {

namespace fs = std::filesystem;
using test::joined;
using test::ProgramResult;
using test::run_here;

// A T5 and a Llama with a chat template, of random weights and one tokenizer, and text of 150 lines.
class NewProgram : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryDirectory>();
    std::vector<std::string> lines;
    for (int i = 0; i < 150; ++i) lines.push_back("the cat " + std::to_string(i) + " sees the dog and a bird");
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    write_text(path("text.txt"), text + text);
    write_text(path("few.txt"), "one\ntwo\n");
    write_text(path("empty.txt"), "\n \n");
    data::train_tokenizer(lines, {.vocabulary = 60, .exact_size = false}, path("spiece.model"));
    const int64_t vocabulary = data::load_tokenizer(path("spiece.model"))->vocabulary();
    save("t5", model::t5_config({.vocabulary = vocabulary, .encoder_layers = 2, .decoder_layers = 4}));
    save("madlad", model::t5_config({.vocabulary = vocabulary + 1, .encoder_layers = 2, .decoder_layers = 4}));
    write_text(path("madlad/spiece.model"),
               read_file(path("spiece.model")) + std::string("\x0a\x0e\x0a\x05<2fr>\x15\0\0\0\0\x18\x04", 16));
    model::TransformerConfig llama = model::llama_config({.vocabulary = vocabulary, .decoder_layers = 4});
    llama.max_positions = 512;
    save("llama", llama);
    save("chat", llama);
    write_text(path("chat/chat_template.jinja"),  // of a model that thinks: no answer continues its prompt
               "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
               "{% if add_generation_prompt %}assistant: <think>{% endif %}");
    llama.vocabulary = 4096;  // padded, so that the head is most of a step
    save("padded", llama);
    llama.eos = {vocabulary + 5};
    save("foreign", llama);
    llama.eos = {1};
    llama.vocabulary = vocabulary - 9;
    save("smaller", llama);
    save("shallow", model::llama_config({.vocabulary = vocabulary, .decoder_layers = 1}));
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string path(const std::string& name) { return (*folder_ / name).string(); }
  static void save(const std::string& name, const model::TransformerConfig& config) {
    model::save_model(path(name), model::TransformerModel(config, 5), {.tokenizer = path("spiece.model")});
  }

  static ProgramResult make(const std::string& target, const std::vector<std::string>& more) {
    return run_here(joined({"new", "--target", path(target), "--device", "cpu", "--quiet", "--threads", "1"}, more));
  }
  static std::string error(const std::string& target, const std::vector<std::string>& more) {
    const ProgramResult result = make(target, more);
    EXPECT_EQ(result.exit_code, 2) << result.out << result.err;
    return result.err;
  }
  // Runs a recipe with a training and an evaluation that are short. Returns what it prints.
  static std::string trained(const std::string& recipe, const std::vector<std::string>& more = {}) {
    std::vector<std::string> all = {
        "train", path(recipe + ".toml"), "--work", path(recipe), "--device", "cpu", "--quiet", "--threads", "1"};
    for (const char* set : {"drafter.training.length='4 steps'", "evaluation.repetitions=1", "evaluation.warmup=1",
                            "evaluation.resamples=20", "evaluation.max_new_tokens=12", "answers.max_new_tokens=12"}) {
      all.insert(all.end(), {"--set", set});
    }
    const ProgramResult result = run_here(joined(all, more));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }
  // Returns the prompts that a recipe trains on.
  static std::set<std::string> training_prompts(const std::string& recipe) {
    std::set<std::string> prompts;
    for (const std::string& line : lines_of(read_file(path(recipe + "/prompts/train.jsonl")))) {
      prompts.insert(nlohmann::json::parse(line).at("source").get<std::string>());
    }
    return prompts;
  }

  static inline std::unique_ptr<TemporaryDirectory> folder_;
};

TEST_F(NewProgram, ARecipeForAnEncoderDecoderRunsToTheVerdict) {
  const ProgramResult made =
      make("t5", {"--text", path("text.txt"), "--hours", "0.2", "--out", path("translator.toml")});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_LE(widest_line(made.out), 100U + path("translator.toml").size()) << made.out;
  EXPECT_THAT(made.out,
              AllOf(HasSubstr("150 different lines"), HasSubstr("layers, 1"), HasSubstr("layers, 2"),
                    HasSubstr("tandem, "), HasSubstr("prompt look-up"), HasSubstr("pays from"), HasSubstr("is assumed"),
                    HasSubstr("Export: not gguf: GGUF is not written"), HasSubstr("draftsmith train")));
  EXPECT_THAT(run_here({"validate", path("translator.toml")}).out, HasSubstr("no errors"));
  EXPECT_THAT(read_file(path("translator.toml")),
              AllOf(HasSubstr("encoder_layers = \"every:2\""), HasSubstr("head.weight"), Not(HasSubstr("chat")),
                    Not(HasSubstr("temperature = 1")), Not(HasSubstr("\"distill\"")), Not(HasSubstr("<"))));

  const std::vector<std::string> out = lines_of(trained("translator"));
  ASSERT_GE(out.size(), 2U);
  EXPECT_THAT(out.back() + out[out.size() - 2], HasSubstr("held-out prompts"));
  const std::set<std::string> prompts = training_prompts("translator");
  const std::vector<std::string> held_out = lines_of(read_file(path("translator/prompts/held_out.txt")));
  EXPECT_EQ(prompts.size() + held_out.size(), 150U) << "each line once";
  for (const std::string& line : held_out) EXPECT_FALSE(prompts.contains(line)) << line;
}

TEST_F(NewProgram, ADecoderOnlyTargetWritesItsOwnPrompts) {
  for (const std::string target : {"chat", "llama"}) {
    const ProgramResult made = make(target, {"--hours", "0.2", "--out", path(target + "-own.toml")});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    EXPECT_THAT(made.out, AllOf(HasSubstr("the target's own"), HasSubstr("; vllm.")));
    EXPECT_THAT(read_file(path(target + "-own.toml")),
                AllOf(HasSubstr("name = \"distill\""), HasSubstr("temperature = 1")));
    for (const char* line : {"chat = true", "lookup = [0, 2]"}) {
      EXPECT_EQ(read_file(path(target + "-own.toml")).find(line) != std::string::npos, target == "chat") << line;
    }
    const std::string out = trained(target + "-own", {"--set", "prompts.count=40", "--set", "prompts.held_out=5"});
    EXPECT_THAT(out, HasSubstr("5 held-out prompts"));
    EXPECT_EQ(out.find("\nlossless ") != std::string::npos, out.find("export: ") != std::string::npos) << out;
    EXPECT_EQ(training_prompts(target + "-own").size(), 40U);
    EXPECT_FALSE(fs::exists(path(target + "-own/prompts/written.json")));
  }
}

TEST_F(NewProgram, RecipesOfEveryKindRunToTheVerdict) {
  struct Case {
    std::string kind, target, line;
  };
  for (const Case& one :
       {Case{"tandem", "t5", "tandem = { primary = "}, Case{"tandem", "llama", "lambda = 0.5"},
        Case{"shared-encoder", "t5", "shared_encoder = { target = "},
        Case{"vocabulary", "padded", "vocabulary_size = 1024"}, Case{"features", "t5", "unrolled = 5 }"},
        Case{"features", "padded", "vocabulary_size = 1024, "}}) {
    SCOPED_TRACE(one.kind + " of " + one.target);
    const std::string name = one.kind + "-" + one.target;
    const ProgramResult made = make(one.target, {"--text", path("text.txt"), "--kind", one.kind, "--alpha", "0.8",
                                                 "--hours", "0.2", "--out", path(name + ".toml")});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    EXPECT_THAT(made.out,
                AllOf(HasSubstr("Chosen: " + one.kind), HasSubstr("0.80 is assumed"), HasSubstr("Export: not gguf: ")));
    const std::string text = read_file(path(name + ".toml"));
    EXPECT_THAT(text, HasSubstr(one.line));
    EXPECT_EQ(text.find("@states/teacher_logits.h5") != std::string::npos, one.kind == "features");
    EXPECT_EQ(text.find("format = \"vllm\"") != std::string::npos, name == "features-padded") << text;
    EXPECT_THAT(trained(name), AllOf(HasSubstr("held-out prompts"), Not(HasSubstr("; export: "))));
  }
}

// `plan` without a drafter has the same candidates.
TEST_F(NewProgram, PlanListsWhatADrafterCouldBe) {
  const std::vector<std::string> line = {"plan", "--model",  path("t5"), "--output-tokens", "32", "--max-window",
                                         "3",    "--device", "cpu",      "--threads",       "1",  "--quiet"};
  EXPECT_THAT(run_here(line).out,
              AllOf(HasSubstr("shared-encoder, "), HasSubstr("pays from"), Not(HasSubstr("assumed"))));
  std::vector<std::string> batch = line;
  batch.insert(batch.end(), {"--batch", "2"});
  EXPECT_THAT(run_here(batch).err, HasSubstr("--drafter"));
}

// Changes an evaluation's results and asks for the verdict. Without a change, the drafter pays.
TEST_F(NewProgram, TheVerdictExportsADrafterThatPays) {
  ASSERT_EQ(make("llama", {"--text", path("text.txt"), "--kind", "features", "--out", path("pays.toml")}).exit_code, 0);
  trained("pays");
  nlohmann::json good = nlohmann::json::parse(read_file(path("pays/evaluation/results.json")));
  const auto change = [](nlohmann::json results, const char* group, const char* key, const nlohmann::json& value) {
    for (nlohmann::json& run : results["tasks"][0]["runs"]) (*group == 0 ? run : run[group])[key] = value;
    return results;
  };
  good = change(change(good, "speed", "speedup", 1.9), "speed", "speedup_ci95", {1.85, 1.95});
  good = change(good, "", "lossless_check", true);
  const auto verdict = [](const nlohmann::json& results, const std::string& drafter, const std::string& format) {
    write_text(path("results.json"), results.dump());
    write_text(path("verdict.toml"), "[verdict]\nkind = \"verdict\"\nevaluation = \"" + path("results.json") +
                                         "\"\ndrafter = \"" + path(drafter) + "\"\nformat = \"" + format + "\"\n");
    fs::remove_all(path("verdict"));
    const ProgramResult result = run_here({"train", path("verdict.toml"), "--work", path("verdict"), "--quiet"});
    return result.out + result.err;
  };
  EXPECT_THAT(verdict(good, "pays/drafter/model", "vllm"),
              AllOf(HasSubstr("lossless 1.90 ± 0.05 times on "), HasSubstr("look-up"),
                    HasSubstr("\nto serve it: vllm serve "), HasSubstr("sampling at temperature 1: lossless 1.90")));
  EXPECT_TRUE(fs::exists(path("verdict/verdict/export/config.json")));
  nlohmann::json unsure = good, behind = good;
  for (nlohmann::json& one : unsure["tasks"][0]["runs"]) {
    if (one["method"] == "assisted") one["speed"].update({{"speedup", 2.5}, {"speedup_ci95", {0.9, 4.1}}});
  }
  EXPECT_THAT(verdict(unsure, "t5", "hf"), HasSubstr("lossless 1.90 ± 0.05 times on ")) << "which is known";
  for (nlohmann::json& one : behind["tasks"][0]["runs"]) {
    if (one["method"] == "assisted" && one["params"]["drafter"] == "drafter") one["params"]["lookup"] = 2;
  }
  EXPECT_THAT(
      verdict(behind, "t5", "hf"),
      AllOf(HasSubstr("best of 1)"), HasSubstr("needs no drafter: lossless 1.90"),
            HasSubstr("behind prompt look-up (--lookup 2), in this program alone: lossless 1.90 ± 0.05 times (")));
  EXPECT_THAT(verdict(good, "t5", "gguf"), AllOf(HasSubstr("lossless 1.90"), HasSubstr("no export: GGUF is not")));
  EXPECT_FALSE(fs::exists(path("verdict/verdict/export")));
  EXPECT_THAT(verdict(change(good, "speed", "speedup_ci95", {nullptr, nullptr}), "t5", "hf"), HasSubstr("not known"));
  EXPECT_THAT(verdict(change(good, "", "lossless_check", false), "t5", "hf"), HasSubstr("3 settings with it"));
  EXPECT_THAT(verdict(change(good, "speed", "speedup", nullptr), "t5", "hf"), HasSubstr("no setting of the drafter"));
  good["tasks"] = nlohmann::json::array();
  EXPECT_THAT(verdict(good, "t5", "hf"), HasSubstr("no results of a task"));
}

TEST_F(NewProgram, OneTypeServesPromptsAndAnswers) {
  for (const std::string dtype : {"bf16", "fp64"}) {
    ASSERT_EQ(make("chat", {"--dtype", dtype, "--out", path(dtype + ".toml")}).exit_code, 0);
    const std::string text = read_file(path(dtype + ".toml"));
    EXPECT_EQ(text.find("dtype = \"bf16\"\nchat = true\ncount = ") != std::string::npos, dtype == "bf16") << text;
    EXPECT_THAT(run_here({"validate", path(dtype + ".toml")}).out, HasSubstr("no errors"));
  }
}

TEST_F(NewProgram, TheLanguageIsThatOfQuestionsAnswersAndEvaluation) {
  const std::string out = path("french.toml");
  ASSERT_EQ(make("madlad", {"--text", path("text.txt"), "--target-language", "fr", "--out", out}).exit_code, 0);
  const std::string text = read_file(out);
  EXPECT_EQ(replace_all(text, "\ntarget_language = \"fr\"\n", "").size(), text.size() - 3 * 24);
  EXPECT_THAT(run_here({"validate", out}).out, HasSubstr("no errors"));
}

TEST_F(NewProgram, TooFewHoursGiveTheShortestRecipe) {
  const ProgramResult made = make("t5", {"--text", path("text.txt"), "--hours", "0.0001", "--out", path("hour.toml")});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.err, AllOf(HasSubstr("--hours: 0.0001 are too few"), HasSubstr("the recipe takes ")));
  EXPECT_THAT(run_here({"validate", path("hour.toml")}).out, HasSubstr("no errors"));
}

TEST_F(NewProgram, MistakesAreFoundBeforeAnythingLong) {
  const std::string out = path("never.toml");
  EXPECT_THAT(error("t5", {"--out", out}), AllOf(HasSubstr("--text"), HasSubstr("sources to translate")));
  EXPECT_THAT(error("chat", {"--task", "summarization", "--out", out}), HasSubstr("texts to summarize"));
  EXPECT_THAT(error("llama", {"--task", "chat", "--out", out}), HasSubstr("chat template"));
  EXPECT_THAT(error("llama", {"--task", "chatt", "--out", out}), HasSubstr("chat"));
  EXPECT_THAT(error("t5", {"--text", path("few.txt"), "--out", out}), AllOf(HasSubstr("100"), HasSubstr("few.txt")));
  EXPECT_THAT(error("t5", {"--text", path("empty.txt"), "--out", out}), AllOf(HasSubstr("100"), HasSubstr("0")));
  EXPECT_THAT(error("t5", {"--text", path("none.txt"), "--out", out}), HasSubstr("none.txt"));
  for (const std::string target : {"smaller", "foreign"}) {
    EXPECT_THAT(error(target, {"--out", out}), AllOf(HasSubstr(target), HasSubstr("do not belong together")));
  }
  EXPECT_THAT(error("llama", {"--out", "/proc/recipe.toml"}), HasSubstr("the disk has no room"))
      << "none is free there";
  EXPECT_THAT(error("llama", {"--kind", "tandm", "--out", out}), HasSubstr("tandem"));
  EXPECT_THAT(error("llama", {"--kind", "shared-encoder", "--out", out}), HasSubstr("--kind"));
  EXPECT_THAT(error("llama", {"--alpha", "nan", "--out", out}), HasSubstr("from 0 to 1"));
  EXPECT_THAT(error("shallow", {"--out", out}), HasSubstr("several decoder layers"));
  EXPECT_THAT(error("t5", {"--text", path("text.txt"), "--out", path("few.txt")}), HasSubstr("exists already"));
  for (const std::string flag : {"--task", "--dtype"}) {
    EXPECT_THAT(error("none.gguf", {flag, "chatt", "--out", out}), HasSubstr(flag)) << "before the file is read";
  }
  EXPECT_THAT(run_here({"import", path("no\xff.gguf"), "--out", path("never")}).err, HasSubstr("is no UTF-8"));
  EXPECT_THAT(error("t5", {"--text", path("text.txt"), "--target-language", "deu_Latn", "--out", out}),
              HasSubstr("deu_Latn"));
  write_text(path("recipe-alone.toml"), "[words]\nkind = \"language\"\n");
  EXPECT_THAT(run_here({"eval", path("recipe-alone.toml")}).err, HasSubstr("draftsmith train"));
  write_text(path("suite-alone.toml"), "model = \"t5\"\n[[task]]\nname = \"test\"\n");
  EXPECT_THAT(run_here({"train", path("suite-alone.toml")}).err, HasSubstr("draftsmith eval"));
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace draftsmith
