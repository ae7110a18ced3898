// Lines printed while they grow: in order, whole characters only, in the end the same text as when printed at once.
#include "cli/lines.h"

#include <random>
#include <sstream>
#include <stdexcept>

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "infer/loop/processors.h"
#include "tests/data/tokenizers/tokenizer_files.h"
#include "tests/support/oracle_fixtures.h"

namespace draftsmith::cli {
namespace {

using Ids = std::vector<int64_t>;

TEST(LivePrinter, ShowsTheFirstUnfinishedLineAndKeepsTheOthersWaiting) {
  std::ostringstream out;
  LivePrinter printer(out, nullptr);
  printer.add(0, Ids{5, 6}, false);
  printer.add(1, Ids{7}, false);
  EXPECT_EQ(out.str(), "5 6");
  printer.add(0, Ids{8}, true);
  EXPECT_EQ(out.str(), "5 6 8\n7");
  printer.add(2, Ids{9}, true);
  printer.add(1, Ids{1}, false);
  EXPECT_EQ(out.str(), "5 6 8\n7 1");
  printer.add(1, Ids{2}, true);
  EXPECT_EQ(out.str(), "5 6 8\n7 1 2\n9\n");
}

TEST(LivePrinter, LinesWithoutTokensAreEmptyAndIncompleteOnesAreBrokenOff) {
  std::ostringstream out;
  LivePrinter printer(out, nullptr);
  printer.break_off();
  printer.add(1, Ids{7}, true);
  EXPECT_EQ(out.str(), "");
  printer.finish_before(3);
  printer.add(3, Ids{5}, false);
  printer.break_off();
  EXPECT_EQ(out.str(), "\n7\n\n5\n");
}

// A model of prompts whose output ends after three tokens for those that begin with 2 and fails after three for others.
infer::OracleModel failing_model() {
  model::ModelInfo info;
  info.name = "failing";
  info.encoder_decoder = false;
  info.vocabulary = 6;
  info.max_positions = 8;
  info.eos = {1};
  info.dtype = at::kDouble;
  return {info, [](std::span<const int64_t>, std::span<const int64_t> prefix) {
            if (prefix.size() > 4) throw std::runtime_error("the model fails");
            std::vector<double> probabilities(6, 0);
            const bool ends = prefix.size() == 4 && prefix.front() == 2;
            probabilities[ends ? 1 : prefix.size()] = 1;
            return probabilities;
          }};
}

TEST(LivePrinter, AnErrorFollowsACompleteLineAndSkippedOnesHoldUpNothing) {
  infer::OracleModel model = failing_model();
  infer::GenerationModels models;
  models.target = &model;
  infer::DecodeOptions options;
  options.max_new_tokens = 6;
  options.long_prompts = "skip";
  options.batch_size = 4;
  infer::Generator generator(models, options);
  std::ostringstream out;
  LivePrinter printer(out, nullptr);
  const std::vector<Ids> sources = {Ids(9, 2), {2, 2}, Ids(8, 2), {3, 3}};
  EXPECT_THROW(generate_live(generator, sources, printer), std::runtime_error);
  EXPECT_EQ(out.str(), "\n2 3 1\n\n2 3 4\n");
}

TEST(LivePrinter, EveryOrderOfCommitsGivesTheTextOfAllTokens) {
  const auto tokenizer = data::load_json_tokenizer(data::byte_level_json({"h e", "Ã ©", "æ Ĺ", "ð Ł"}));
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<Ids> lines(6);
    std::string expected;
    for (Ids& line : lines) {
      for (size_t count = random() % 12; count > 0; --count) line.push_back(random() % 263);  // 260 and more: padding
      expected += one_line(infer::text_of_known(*tokenizer, line)) + "\n";
    }
    std::ostringstream out;
    LivePrinter printer(out, tokenizer.get());
    std::vector<size_t> done(lines.size(), 0);
    for (size_t left = lines.size(); left > 0;) {
      const size_t i = random() % lines.size();
      if (done[i] > lines[i].size()) continue;
      const size_t count = std::min<size_t>(random() % 4, lines[i].size() - done[i]);
      const bool finished = done[i] + count == lines[i].size();
      printer.add(i, std::span(lines[i]).subspan(done[i], count), finished);
      done[i] += count + (finished ? 1 : 0);
      left -= finished ? 1 : 0;
      ASSERT_FALSE(invalid_utf8_offset(out.str())) << "round " << round;
    }
    ASSERT_EQ(out.str(), expected) << "round " << round;
  }
}

}  // namespace
}  // namespace draftsmith::cli
