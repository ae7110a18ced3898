// GGUF files: what is written is read again, damaged files are refused, and an export is the model or nothing.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "model/files/checkpoint.h"
#include "recipes/export/export_model.h"
#include "recipes/export/gguf/blocks.h"
#include "recipes/export/gguf/gguf_file.h"
#include "recipes/export/gguf/gguf_model.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;
using testing::AnyOf;
using testing::HasSubstr;
using testing::IsEmpty;

// A Llama with everything that has a form of its own in GGUF: biases, shared keys, scaled rotation.
model::TransformerConfig llama_for_gguf() {
  model::TransformerConfig config = model::tiny_llama(2);
  config.projection_bias = config.output_bias = config.feed_forward_bias = true;
  config.rotary.scaling = model::RotaryScaling::kLlama3;
  config.rotary.factor = 8;
  config.rotary.original_positions = 32;
  return config;
}

TEST(GgufBlocks, RoundByTheFactorBeforeItIsRounded) {
  std::vector<float> values(64, 0.0f);
  values[0] = 127;
  values[1] = 0.5f;
  values[2] = -0.5f;
  values[3] = -126.6f;
  std::vector<float> read(64, 1.0f);
  from_blocks(to_blocks(values), read);
  EXPECT_EQ(read[0], 127);
  EXPECT_EQ(read[1], 1);  // halves go away from zero
  EXPECT_EQ(read[2], -1);
  EXPECT_EQ(read[3], -127);
  EXPECT_EQ(read[4], 0);
  EXPECT_EQ(read[40], 0);  // a block of zeros
}

class GgufFiles : public testing::Test {
 protected:
  // A file with a value of each type and a tensor of each.
  void write_all_types() const {
    const GgufValues values = {{"whole", uint32_t{7}},
                               {"part", 0.5f},
                               {"yes", true},
                               {"text", std::string("a \xC3\xA4")},
                               {"texts", std::vector<std::string>{"", "b"}},
                               {"numbers", std::vector<float>{1.5f}},
                               {"integers", std::vector<int32_t>{-3, 4}},
                               {"bytes", std::vector<uint8_t>{0, 255}}};
    std::vector<GgufPlace> places;
    for (const GgufType type : {GgufType::kF32, GgufType::kF16, GgufType::kBF16, GgufType::kQ8_0}) {
      places.push_back({gguf_type_name(type), {3, 32}, type});
    }
    write_gguf(file_, values, places, [](const GgufPlace&) { return tensor(); });
  }

  static at::Tensor tensor() { return at::arange(96, at::kFloat).sub(40).div(127).reshape({3, 32}); }

  const TemporaryDirectory folder_;
  const fs::path file_ = folder_ / "a.gguf";
};

TEST_F(GgufFiles, ReadAsTheyWereWritten) {
  write_all_types();
  const GgufFile file(file_);
  EXPECT_EQ(file.values().size(), 8);
  EXPECT_EQ(file.values()[3], (std::pair<std::string, GgufValue>("text", std::string("a \xC3\xA4"))));
  EXPECT_EQ(file.values()[6].second, GgufValue(std::vector<int32_t>{-3, 4}));
  EXPECT_EQ(file.places()[3].shape, (std::vector<int64_t>{3, 32}));
  EXPECT_TRUE(file.tensor("F32").equal(tensor()));
  EXPECT_TRUE(file.tensor("F16").equal(tensor().to(at::kHalf).to(at::kFloat)));
  EXPECT_TRUE(file.tensor("BF16").equal(tensor().to(at::kBFloat16).to(at::kFloat)));
  EXPECT_TRUE(file.tensor("Q8_0").allclose(tensor(), 0, 0.002));
  EXPECT_THAT(error_of([&] { file.tensor("absent"); }), HasSubstr("no tensor 'absent'"));
}

TEST_F(GgufFiles, TruncatedOnesAreRefused) {
  write_all_types();
  const std::string whole = read_file(file_);
  for (size_t bytes = 0; bytes < whole.size(); bytes += bytes < 700 ? 1 : 101) {
    write_file_atomic(folder_ / "cut.gguf", whole.substr(0, bytes));
    const std::string error = error_of([&] { GgufFile cut(folder_ / "cut.gguf"); });
    // The last tensor may lack its padding alone.
    const bool only_padding = bytes + 32 > whole.size();
    EXPECT_THAT(error, AnyOf(HasSubstr("cut.gguf"), only_padding ? HasSubstr("no error") : HasSubstr("cut.gguf")))
        << bytes;
  }
}

TEST_F(GgufFiles, DamagedOnesAreRefusedOrReadWithoutHarm) {
  write_all_types();
  const std::string whole = read_file(file_);
  for (size_t at = 0; at < 700; ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0xff);
    write_file_atomic(folder_ / "bad.gguf", damaged);
    error_of([&] {
      const GgufFile bad(folder_ / "bad.gguf");
      for (const GgufPlace& place : bad.places()) bad.tensor(place.name);
    });
  }
}

TEST_F(GgufFiles, NothingIsWrittenThatIsNotFinite) {
  const auto write = [&](double value, GgufType type) {
    return error_of<RunError>([&] {
      write_gguf(file_, {}, {{"t", {32}, type}}, [&](const GgufPlace&) { return at::full({32}, value, at::kFloat); });
    });
  };
  EXPECT_THAT(write(std::numeric_limits<double>::quiet_NaN(), GgufType::kF32), HasSubstr("not finite"));
  EXPECT_THAT(write(70000, GgufType::kF16), HasSubstr("not finite"));
  EXPECT_THAT(write(1e8, GgufType::kQ8_0), HasSubstr("not finite"));
  EXPECT_FALSE(fs::exists(file_));
}

class GgufExports : public testing::Test {
 protected:
  void save(const std::string& name, const model::TransformerConfig& config) const {
    model::save_model(folder_ / name, *model::varied_model(config, 5, at::kFloat));
  }
  ExportSummary run(const std::string& name, const std::string& out, const std::string& dtype = "stored") const {
    return export_model({.model = folder_ / name, .out = folder_ / out, .format = "gguf", .dtype = dtype}, at::kCPU);
  }
  std::string refused(const std::string& name, const std::string& out, const std::string& dtype = "stored") const {
    return error_of([&] { run(name, out, dtype); });
  }
  const TemporaryDirectory folder_;
};

TEST_F(GgufExports, AreTheModel) {
  save("llama", llama_for_gguf());
  save("gpt2", model::tiny_gpt2());
  for (const std::string name : {"llama", "gpt2"}) {
    const ExportSummary done = run(name, name + ".gguf");
    EXPECT_EQ(done.dtype, "F32");
    EXPECT_EQ(done.logits_difference, 0) << name;
    EXPECT_EQ(run(name, name + "-16.gguf", "fp16").dtype, "F16");
    EXPECT_EQ(run(name, name + "-8.gguf", "q8_0").dtype, "Q8_0");
    EXPECT_LT(fs::file_size(folder_ / (name + "-16.gguf")), fs::file_size(folder_ / (name + ".gguf")));
  }
}

TEST_F(GgufExports, ScaledRotationBecomesFactors) {
  const at::Tensor factors = rope_factors(llama_for_gguf());
  EXPECT_EQ(factors.numel(), llama_for_gguf().head_width / 2);
  EXPECT_TRUE(factors.ge(0.999).all().item<bool>());
  EXPECT_NEAR(factors[-1].item<double>(), 8, 1e-4);  // the slowest pair turns 8 times as slowly
  EXPECT_FALSE(rope_factors(model::tiny_llama()).defined());
}

TEST_F(GgufExports, RefuseWhatTheyCannotHold) {
  save("llama", model::tiny_llama());
  save("neox", model::tiny_neox());
  EXPECT_THAT(refused("neox", "out.gguf"), HasSubstr("GGUF is written for Llama and GPT-2 alone"));
  EXPECT_THAT(refused("llama", "out"), HasSubstr("a name that ends in .gguf"));
  write_file_atomic(folder_ / "out.gguf", "kept");
  EXPECT_THAT(refused("llama", "out.gguf"), HasSubstr("exists already"));
  EXPECT_EQ(read_file(folder_ / "out.gguf"), "kept");
  const auto directory = error_of([&] {
    export_model({.model = folder_ / "llama", .out = folder_ / "directory", .format = "hf", .dtype = "q8_0"}, at::kCPU);
  });
  EXPECT_THAT(directory, HasSubstr("q8_0"));
}

TEST_F(GgufExports, LeaveNothingWhenTheTypeIsTooNarrow) {
  const auto model = model::varied_model(model::tiny_llama(), 5, at::kFloat);
  model->parameters().at("embedding.weight").mul_(1e6);
  model::save_model(folder_ / "large", *model);
  EXPECT_THAT(refused("large", "large.gguf", "fp16"), HasSubstr("overflow"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace draftsmith::recipes
