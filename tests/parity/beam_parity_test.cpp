// Beam search gives the outputs and scores of Transformers' num_beams: T5, Marian and decoder-only families, every
// early stopping, length penalties, processors, one source at a time and in batches.
#include <algorithm>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "base/json.h"
#include "infer/generator.h"
#include "model/files/model_directory.h"
#include "tests/parity/model_comparison.h"
#include "tests/support/paths.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;

infer::DecodeOptions options_of(const nlohmann::json& record, int64_t batch_size) {
  const nlohmann::json& settings = record.at("settings");
  infer::DecodeOptions options;
  options.method = "beam";
  options.num_beams = settings.at("num_beams").get<int64_t>();
  options.n_best = settings.value("num_return_sequences", int64_t{1});
  options.max_new_tokens = record.at("new_tokens").get<int64_t>();
  options.batch_size = batch_size;
  return options;
}

// Compares the outputs of one record; the settings are those of a directory, as Transformers would save them.
void expect_equal_beams(TransformerModel& model, const nlohmann::json& record, int64_t batch_size) {
  nlohmann::json own = record.at("settings");
  own.erase("num_return_sequences");
  infer::GenerationModels models;
  models.target = &model;
  models.generation = settings_of(own, model);
  const infer::DecodeOptions options = options_of(record, batch_size);
  const auto sources = record.at("sources").get<Lists>();
  const auto results = infer::Generator(models, options).generate(sources);
  ASSERT_EQ(results.size(), sources.size() * static_cast<size_t>(options.n_best));
  for (size_t i = 0; i < results.size(); ++i) {
    const size_t source = i / static_cast<size_t>(options.n_best);
    const size_t output = i % static_cast<size_t>(options.n_best);
    const std::string where = record.at("model").get<std::string>() + record.at("settings").dump() + ", source " +
                              std::to_string(source) + ", output " + std::to_string(output);
    EXPECT_EQ(results[i].ids, record.at("outputs")[source][output].get<std::vector<int64_t>>()) << where;
    const auto score = record.at("scores")[source][output].get<double>();
    EXPECT_NEAR(results[i].score.value(), score, 5e-5 * std::max(1.0, std::abs(score))) << where;
  }
}

class BeamParity : public NeedsTransformers {
 protected:
  // Returns the records that Transformers makes of its models, or of a trained one.
  static nlohmann::json records(const std::string& trained = "") {
    EXPECT_EQ(reference().run("beams", trained), "");
    return load_json(reference().root() / "beams.json");
  }
  static const TransformersReference& reference() { return TransformersReference::of("parity_models.py"); }
};

TEST_F(BeamParity, OutputsAndScoresAreThoseOfTransformers) {
  const nlohmann::json all = records();
  EXPECT_EQ(all.size(), 48);
  for (const nlohmann::json& record : all) {
    const auto model = load(reference().directory(record.at("model").get<std::string>()), true);
    for (const int64_t batch_size : {1, 16}) expect_equal_beams(*model, record, batch_size);
  }
}

TEST_F(BeamParity, ATrainedModelGivesTheSameBeams) {
  const fs::path directory = draftsmith::test::data_dir() / "models/stories260k_hf";
  if (!fs::exists(directory)) GTEST_SKIP() << "no " << directory;
  const auto model = load(directory, true);
  for (const nlohmann::json& record : records("'" + directory.string() + "'")) expect_equal_beams(*model, record, 16);
}

}  // namespace
}  // namespace draftsmith::model
