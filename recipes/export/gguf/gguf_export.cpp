#include "recipes/export/gguf/gguf_export.h"

#include <map>
#include <optional>

#include <fmt/format.h>

#include "base/device.h"
#include "base/environment.h"
#include "base/files.h"
#include "base/logging.h"
#include "base/signals.h"
#include "data/tokenizers/load_tokenizer.h"
#include "model/files/checkpoint.h"
#include "model/files/model_hash.h"
#include "recipes/export/alpha_check.h"
#include "recipes/export/export_checks.h"
#include "recipes/export/export_formats.h"
#include "recipes/export/gguf/blocks.h"
#include "recipes/export/gguf/gguf_file.h"
#include "recipes/export/gguf/gguf_model.h"
#include "recipes/export/gguf/gguf_tokenizer.h"
#include "recipes/export/model_facts.h"
#include "recipes/export/probes.h"

namespace draftsmith::recipes {

namespace {

namespace fs = std::filesystem;

constexpr const char* kNothingExported = "nothing was exported";
constexpr const char* kRopeFactors = "rope_freqs.weight";
// A number of a block may be half a step away, and its factor, in fp16, up to 127 / 2048 of a step.
constexpr double kBlockTolerance = 0.57;

GgufType type_of(const ExportOptions& options, at::ScalarType stored) {
  if (options.dtype == kBlockType) return GgufType::kQ8_0;
  const at::ScalarType type = options.dtype == "stored" ? stored : parse_dtype(options.dtype, "--dtype");
  return type == at::kHalf ? GgufType::kF16 : type == at::kBFloat16 ? GgufType::kBF16 : GgufType::kF32;
}

// Refuses what is wrong with the name of the file. Errors: UserError.
void check_name(const ExportOptions& options) {
  if (options.out.extension() != kGgufEnding) {
    throw UserError({.where = "--out",
                     .what = "--format gguf writes one file, not a directory",
                     .expected = "a name that ends in .gguf",
                     .found = options.out.string()});
  }
  if (!fs::exists(options.out)) return;
  throw UserError({.where = options.out.string(),
                   .what = "exists already, and an export overwrites nothing",
                   .expected = "the name of a new file",
                   .hint = "choose another name, or remove the file"});
}

// Returns what a file says of itself: the model, its tokenizer, its settings and its origin.
GgufValues values_of(const model::ModelDirectory& opened, const ExportOptions& options, GgufType type) {
  const model::TransformerConfig& config = opened.config();
  GgufValues values = gguf_settings(config, options.out.stem().string(), type);
  values.emplace_back("general.description", fmt::format("Exported by Draftsmith {} ({})", version(), git_commit()));
  values.emplace_back(kGgufModelHash, model::model_hash(options.model));
  const bool reads_text = data::has_tokenizer(options.model);
  const GgufValues tokens =
      reads_text ? gguf_tokenizer(*data::load_tokenizer(options.model), config.vocabulary) : gguf_without_tokenizer();
  values.insert(values.end(), tokens.begin(), tokens.end());
  return values;
}

// Returns a problem if a tensor of the file is not the model's, in the tensor's type.
std::optional<Problem> difference_of(const GgufPlace& place, const at::Tensor& found, const at::Tensor& model) {
  const at::Tensor error = found.sub(model).abs();
  bool same = false;
  if (place.type == GgufType::kQ8_0) {
    const at::Tensor step = model.abs().reshape({-1, kBlockValues}).amax(-1, true).div(127);
    same = error.reshape({-1, kBlockValues}).le(step.mul(kBlockTolerance)).all().item<bool>();
  } else {
    same = found.equal(model.to(scalar_type_of(place.type)).to(at::kFloat));
  }
  if (same) return std::nullopt;
  return Problem{.where = "tensor '" + place.name + "'",
                 .what = "has other values in the file than in the model",
                 .expected = fmt::format("equal values in {}", gguf_type_name(place.type)),
                 .found = fmt::format("a difference of {:.2e}", error.max().item<double>())};
}

class GgufExport {
 public:
  GgufExport(const ExportOptions& options, c10::Device device)
      : options_(options),
        device_(device),
        opened_(options.model),
        type_(type_of(options, stored_type(opened_))),
        probes_(make_probes(opened_.config())) {}

  ExportSummary run() {
    check_name(options_);
    check_model(opened_, options_);
    if (options_.target) {
      log_info("running the target for alpha: {}", options_.target->string());
      alpha_.emplace(*options_.target, options_.model, options_.text.value_or(""), device_);
    }
    throw_if_stop_requested(kNothingExported);
    AtomicPath file(options_.out);
    const auto model = model::load_model(options_.model, {.device = device_, .pack = false});
    const ModelFacts before = facts(*model);
    require_finite_logits(before.logits, options_.model);
    log_info("writing {} as {}", options_.out.string(), gguf_type_name(type_));
    write(file.temporary(), *model);
    throw_if_stop_requested(kNothingExported);
    log_info("reading it again");
    const ModelFacts after = read_back(file.temporary(), *model, before);
    throw_if_stop_requested(kNothingExported);
    file.commit();
    return {.format = options_.format,
            .dtype = gguf_type_name(type_),
            .tensors = model->parameters().size(),
            .logits_difference = relative_difference(after.logits, before.logits),
            .before = before.alpha,
            .after = after.alpha,
            .alpha_text = alpha_ ? alpha_->described() : ""};
  }

 private:
  ModelFacts facts(model::TransformerModel& model) const {
    ModelFacts facts{.parameters = {}, .logits = probe_logits(model, probes_), .alpha = std::nullopt};
    if (alpha_) facts.alpha = alpha_->measure(model);
    return facts;
  }

  void write(const fs::path& file, const model::TransformerModel& model) const {
    std::vector<GgufPlace> places;
    std::map<std::string, GgufTensor> tensors;
    for (const GgufTensor& tensor : gguf_tensors(opened_.config())) {
      const at::Tensor values = to_gguf(tensor, model);
      places.push_back(gguf_place(tensor, values, type_));
      require_fits(places.back(), values);
      tensors.emplace(tensor.name, tensor);
    }
    const at::Tensor factors = rope_factors(opened_.config());
    if (factors.defined()) places.push_back({kRopeFactors, factors.sizes().vec(), GgufType::kF32});
    write_gguf(file, values_of(opened_, options_, type_), places, [&](const GgufPlace& place) {
      return place.name == kRopeFactors ? factors : to_gguf(tensors.at(place.name), model);
    });
  }

  // Refuses a value beyond the largest of the type, which the model itself can hold. Errors: UserError.
  void require_fits(const GgufPlace& place, const at::Tensor& values) const {
    const at::Tensor largest = place.type == GgufType::kQ8_0 ? values.abs().max().div(127) : values.abs().max();
    const at::ScalarType type = place.type == GgufType::kQ8_0 ? at::kHalf : scalar_type_of(place.type);
    if (at::isfinite(largest.to(type)).item<bool>()) return;
    throw_type_too_narrow(options_, {.where = place.name,
                                     .what = fmt::format("values of {} overflow", place.name),
                                     .expected = "values that the type can hold",
                                     .found = fmt::format("{:g}", values.abs().max().item<double>())});
  }

  // Gives a copy of the model the file's numbers and compares both.
  ModelFacts read_back(const fs::path& path, const model::TransformerModel& model, const ModelFacts& before) const {
    const GgufFile file(path);
    const auto copy = model::load_model(options_.model, {.device = device_, .pack = false});
    std::vector<Problem> problems;
    for (const GgufTensor& tensor : gguf_tensors(opened_.config())) {
      const at::Tensor wanted = to_gguf(tensor, model);
      const at::Tensor found = file.tensor(tensor.name);
      if (auto problem = difference_of(gguf_place(tensor, wanted, type_), found, wanted)) {
        problems.push_back(std::move(*problem));
      }
      from_gguf(tensor, found, *copy);
    }
    ModelFacts after = facts(*copy);
    const auto changed = differences(before, after, limits(), options_.out.string());
    const bool narrowed = type_ != GgufType::kF32;
    if (problems.empty() && narrowed && !changed.empty()) throw_type_too_narrow(options_, changed.front());
    problems.insert(problems.end(), changed.begin(), changed.end());
    if (!problems.empty()) throw_mismatch(problems, options_.out);
    return after;
  }

  FactLimits limits() const {
    if (type_ == GgufType::kQ8_0) return {.logits = 0.1, .alpha = 0.02};
    return limits_for(scalar_type_of(type_) == stored_type(opened_), scalar_type_of(type_));
  }

  const ExportOptions& options_;
  c10::Device device_;
  model::ModelDirectory opened_;
  GgufType type_;
  Probes probes_;
  std::optional<AlphaCheck> alpha_;
};

}  // namespace

ExportSummary export_gguf(const ExportOptions& options, c10::Device device) {
  return GgufExport(options, device).run();
}

}  // namespace draftsmith::recipes
