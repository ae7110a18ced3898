#include "recipes/export/export_model.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/device.h"
#include "base/environment.h"
#include "base/files.h"
#include "base/logging.h"
#include "base/signals.h"
#include "data/tokenizers/load_tokenizer.h"
#include "model/files/checkpoint.h"
#include "model/files/directory_parameters.h"
#include "model/files/new_directory.h"
#include "recipes/export/export_checks.h"
#include "recipes/export/export_formats.h"
#include "recipes/export/export_record.h"
#include "recipes/export/exported_exits.h"
#include "recipes/export/gguf/gguf_export.h"
#include "recipes/export/model_card.h"
#include "recipes/export/model_facts.h"

namespace draftsmith::recipes {

namespace {

namespace fs = std::filesystem;

constexpr const char* kStopped = "nothing was exported";

// The model's files under a temporary name.
void write_files(const fs::path& directory, const model::TransformerModel& model, const ExportOptions& options,
                 at::ScalarType dtype) {
  model::SaveOptions save;
  save.dtype = dtype;
  save.shard_bytes = static_cast<uint64_t>(options.shard_megabytes) * 1'000'000;
  save.generation = model::load_generation_config(options.model);
  if (data::has_tokenizer(options.model)) save.tokenizer = data::load_tokenizer(options.model)->file();
  model::save_model(directory, model, save);
  // Copied as it is, with keys that only other programs read.
  const fs::path settings = options.model / "generation_config.json";
  if (fs::exists(settings)) write_file_atomic(directory / "generation_config.json", read_file(settings));
  if (fs::exists(options.model / "chat_template.jinja")) {
    write_file_atomic(directory / "chat_template.jinja", read_file(options.model / "chat_template.jinja"));
  }
}

// Returns a problem for each tensor in the files that stores no parameter.
std::vector<Problem> extra_tensors(const model::ModelDirectory& written) {
  std::set<std::string> expected;
  for (const auto& [parameter, stored] : written.parameters()) expected.insert(stored.name);
  std::vector<Problem> problems;
  for (const auto& [name, file] : written.weights().tensors()) {
    if (!expected.contains(name))
      problems.push_back({.where = written.weights().where(name), .what = "is not a tensor of the model"});
  }
  return problems;
}

nlohmann::ordered_json alpha_json(const infer::ForcedAlpha& alpha) {
  return {{"alpha", alpha.alpha}, {"agreement", alpha.agreement}, {"positions", alpha.positions}};
}

nlohmann::ordered_json proof_json(const ExportSummary& summary) {
  nlohmann::ordered_json json = {{"parameters", summary.tensors}, {"logits_difference", summary.logits_difference}};
  if (summary.before && summary.after) {
    json["alpha_on"] = summary.alpha_text;
    json["alpha_before"] = alpha_json(*summary.before);
    json["alpha_after"] = alpha_json(*summary.after);
  }
  return json;
}

class Export {
 public:
  Export(const ExportOptions& options, c10::Device device)
      : options_(options), device_(device), opened_(options.model), stored_(stored_type(opened_)) {
    dtype_ = options.dtype == "stored" ? stored_ : parse_dtype(options.dtype, "--dtype");
    load_type_ = stored_ == at::kDouble ? at::kDouble : at::kFloat;
    probes_ = make_probes(opened_.config());
  }

  ExportSummary run() {
    check_model(opened_, options_);
    ExportSummary summary;
    model::write_new_directory(options_.out, [&](const fs::path& temporary) { summary = fill(temporary); });
    return summary;
  }

 private:
  ExportSummary fill(const fs::path& directory) {
    std::optional<AlphaCheck> alpha;
    if (options_.target) {
      log_info("running the target for alpha: {}", options_.target->string());
      alpha.emplace(*options_.target, options_.model, options_.text.value_or(""), device_);
    }
    throw_if_stop_requested(kStopped);
    const ModelFacts before = write(directory, alpha ? &*alpha : nullptr);
    throw_if_stop_requested(kStopped);
    const ModelFacts after = read_back(directory, before, alpha ? &*alpha : nullptr);
    throw_if_stop_requested(kStopped);
    ExportSummary summary = summarise(before, after, alpha ? alpha->described() : "");
    finish(directory, summary, after);
    return summary;
  }

  std::unique_ptr<model::TransformerModel> load(const fs::path& directory) const {
    return model::load_model(directory, {.device = device_, .dtype = load_type_, .pack = false});
  }

  ModelFacts write(const fs::path& directory, const AlphaCheck* alpha) const {
    const auto model = load(options_.model);
    ModelFacts facts = facts_of(*model, probes_, dtype_, alpha);
    require_finite_logits(facts.logits, options_.model);
    const auto exits = exits_of(options_.model, *model);
    if (narrows()) require_values_fit(*model, exits.get());
    log_info("writing {} as {}", options_.out.string(), model::stored_dtype_name(dtype_));
    write_files(directory, *model, options_, dtype_);
    if (exits) {
      add_exits(facts, *exits, dtype_);
      const fs::path out = options_.out.has_filename() ? options_.out : options_.out.parent_path();
      write_exits(directory, *exits, out.filename(), dtype_);
    }
    return facts;
  }

  // Returns whether the type of the files cannot hold every value of the stored type.
  bool narrows() const { return at::promoteTypes(stored_, dtype_) != dtype_; }

  void require_values_fit(const model::TransformerModel& model, const model::Exits* exits) const {
    for (const auto& [name, parameter] : model.parameters()) {
      require_value_fits(name, parameter, model::parameter_dtype(model.config(), name, dtype_));
    }
    if (exits == nullptr) return;
    for (const auto& [name, parameter] : exits->parameters()) require_value_fits(name, parameter, dtype_);
  }

  void require_value_fits(const std::string& name, const at::Tensor& parameter, at::ScalarType type) const {
    const at::Tensor largest = parameter.detach().abs().max();
    if (at::isfinite(largest.to(type)).item<bool>() || !at::isfinite(largest).item<bool>()) return;
    throw_type_too_narrow(options_, {.what = fmt::format("values of {} overflow", name),
                                     .expected = "values that the type can hold",
                                     .found = fmt::format("{:g}", largest.item<double>())});
  }

  ModelFacts read_back(const fs::path& directory, const ModelFacts& before, const AlphaCheck* alpha) const {
    log_info("loading it again");
    const auto model = load(directory);
    ModelFacts after = facts_of(*model, probes_, dtype_, alpha);
    if (const auto exits = exits_of(directory, *model)) add_exits(after, *exits, dtype_);
    auto problems = extra_tensors(model::ModelDirectory(directory));
    const auto limits = limits_for(dtype_ == stored_, dtype_);
    const auto changed = differences(before, after, limits, options_.out.string());
    const bool as_asked = problems.empty() && before.parameters == after.parameters;
    if (as_asked && narrows() && !changed.empty()) throw_type_too_narrow(options_, changed.front());
    problems.insert(problems.end(), changed.begin(), changed.end());
    if (!problems.empty()) throw_mismatch(problems, options_.out);
    return after;
  }

  ExportSummary summarise(const ModelFacts& before, const ModelFacts& after, const std::string& alpha_text) const {
    return {.format = options_.format,
            .dtype = model::stored_dtype_name(dtype_),
            .tensors = after.parameters.size(),
            .logits_difference = relative_difference(after.logits, before.logits),
            .before = before.alpha,
            .after = after.alpha,
            .alpha_text = alpha_text};
  }

  void finish(const fs::path& directory, const ExportSummary& summary, const ModelFacts& after) const {
    make_directories(directory / "draftsmith");
    write_probe_logits(probe_logits_file(directory), after.logits);
    write_file_atomic(directory / "README.md", model_card({options_, summary, model::describe_model(directory)}));
    write_export_record(
        directory,
        {.format = options_.format, .date = now_utc(), .probes = to_json(probes_), .proof = proof_json(summary)});
  }

  const ExportOptions& options_;
  c10::Device device_;
  model::ModelDirectory opened_;
  at::ScalarType stored_;
  at::ScalarType dtype_ = at::kFloat;
  at::ScalarType load_type_ = at::kFloat;
  Probes probes_;
};

}  // namespace

ExportSummary export_model(const ExportOptions& options, c10::Device device) {
  export_format_named(options.format);
  require_standalone(options.model, options.format);
  if (options.format == kGgufFormat) return export_gguf(options, device);
  return Export(options, device).run();
}

}  // namespace draftsmith::recipes
