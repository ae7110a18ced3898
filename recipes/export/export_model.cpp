#include "recipes/export/export_model.h"

#include <map>
#include <memory>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/device.h"
#include "base/environment.h"
#include "base/files.h"
#include "base/signals.h"
#include "data/tokenizers/tokenizer.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/models/exits.h"
#include "recipes/export/export_formats.h"
#include "recipes/export/gguf.h"
#include "recipes/inspection.h"

namespace draftsmith::recipes {

namespace {

namespace fs = std::filesystem;

constexpr const char* kStopped = "nothing was exported";
constexpr const char* kBlockType = "q8_0";  // --dtype of GGUF's blocks

// Returns the type of a directory's weights: the widest one, ignoring fp32 parameters that an fp16 model must keep.
at::ScalarType stored_type(const model::ModelDirectory& opened) {
  std::set<std::string> types;
  std::set<std::string> others;  // without parameters that stay fp32 in fp16
  for (const auto& [parameter, stored] : opened.parameters()) {
    const std::string& dtype = opened.weights().entry(stored.name).dtype;
    types.insert(dtype);
    if (dtype != "F32" || !model::keeps_fp32_in_half(opened.config(), parameter.name)) others.insert(dtype);
  }
  if (others == std::set<std::string>{"F16"}) return at::kHalf;
  if (types.contains("F64")) return at::kDouble;
  if (types.size() == 1) return model::float_type(*types.begin()).value();
  return at::kFloat;
}

at::ScalarType type_for(const ExportOptions& options, at::ScalarType stored) {
  return options.dtype == "stored" ? stored : parse_dtype(options.dtype, "--dtype");
}

// Refuses what the format cannot hold, and a model that changed since it was made. Errors: UserError with all problems.
void check_model(const model::ModelDirectory& opened, const ExportOptions& options) {
  std::optional<model::TransformerConfig> target;
  if (options.target) target = model::read_settings(*options.target, &model::ordinary_kind()).config;
  Problems problems;
  export_format_named(options.format).check(options.model.string(), opened.config(), target, problems);
  problems.add_all(verify(options.model));
  problems.throw_if_any();
}

// Refuses a finite value beyond the largest of the type, and a matrix that would be zero. Errors: UserError.
void require_fits(const ExportOptions& options, const std::string& name, const at::Tensor& values,
                  at::ScalarType type) {
  const at::Tensor largest = values.detach().abs().max();
  const at::Tensor stored = largest.to(type);
  const bool overflows = at::isfinite(largest).item<bool>() && !at::isfinite(stored).item<bool>();
  const bool vanishes = values.dim() > 1 && largest.item<double>() > 0 && stored.item<double>() == 0;
  if (!overflows && !vanishes) return;
  throw UserError({.where = options.model.string(),
                   .what = fmt::format("the model cannot be held in {}: values of {} {}", options.dtype, name,
                                       overflows ? "overflow" : "vanish"),
                   .expected = "values that the type can hold",
                   .found = fmt::format("{:g}", largest.item<double>()),
                   .hint = options.dtype == "fp16" ? "choose --dtype stored or bf16" : "choose --dtype stored"});
}

std::unique_ptr<model::TransformerModel> load_whole(const model::ModelDirectory& opened, at::ScalarType stored) {
  return model::load_model(opened, {.dtype = stored == at::kDouble ? at::kDouble : at::kFloat, .pack = false});
}

std::string card(const fs::path& name, const ExportOptions& options, const model::ModelDirectory& model,
                 const std::string& dtype) {
  const auto& c = model.config();
  std::string text =
      "---\nlibrary_name: transformers\ntags:\n- draftsmith\n- speculative-decoding\n- draft-model\n---\n\n";
  text +=
      fmt::format("# {}\n\nA draft model for speculative decoding{}: {} ({}), {:.1f} M parameters, ", name.string(),
                  options.target ? fmt::format(", drafter of `{}`", options.target->string()) : "",
                  model.family().architecture, model.family().name, static_cast<double>(model::count_numbers(c)) / 1e6);
  if (c.encoder_decoder) text += fmt::format("{} encoder and ", c.encoder_layers);
  text += fmt::format("{} decoder layers, width {}, {} token ids, stored as {}.\n", c.decoder_layers, c.width,
                      c.vocabulary, dtype);
  if (model::holds_exits(model::exits_directory(options.model))) {
    text += "Draftsmith also reads the exits in `draftsmith/exits`; to other engines it is the model without exits.\n";
  }
  return text + "\n" + export_format_named(options.format).usage(name, c) +
         fmt::format("\nWritten by `draftsmith export --format {} --dtype {}`, Draftsmith {} (commit {}).\n",
                     options.format, options.dtype, version(), git_commit());
}

// Writes the model, its tokenizer and its settings of generation.
void write_model(const fs::path& directory, const model::TransformerModel& model, const model::ModelDirectory& opened,
                 const ExportOptions& options, at::ScalarType dtype) {
  model::SaveOptions save;
  save.dtype = dtype;
  save.shard_bytes = static_cast<uint64_t>(options.shard_megabytes) * 1'000'000;
  save.generation = opened.generation();
  if (data::has_tokenizer(options.model)) save.tokenizer = data::load_tokenizer(options.model)->file();
  model::write_model_files(directory, model, save);
  // Copied as they are, with keys that only other programs read.
  for (const char* name : {"generation_config.json", "chat_template.jinja"}) {
    if (fs::exists(options.model / name)) write_file_atomic(directory / name, read_file(options.model / name));
  }
}

// Writes exits into the directory of their model and binds them to it, since the hash of the model depends on its type.
void write_exits(const fs::path& directory, model::Exits& exits, const std::string& name, at::ScalarType dtype) {
  exits.to(at::kCPU, dtype);
  exits.bind(name, model::model_hash(directory));
  model::save_exits(model::exits_directory(directory), exits);
}

ExportSummary export_directory(const model::ModelDirectory& opened, const ExportOptions& options) {
  const fs::path out = model::require_free_place(options.out);
  const at::ScalarType dtype = type_for(options, stored_type(opened));
  const auto model = load_whole(opened, stored_type(opened));
  ExportSummary summary{.dtype = model::stored_dtype_name(dtype), .parameters = model->parameters().size()};
  for (const auto& [name, parameter] : model->parameters()) {
    require_fits(options, name, parameter, model::parameter_dtype(opened.config(), name, dtype));
  }
  std::unique_ptr<model::Exits> exits;
  if (const fs::path place = model::exits_directory(options.model); model::holds_exits(place)) {
    exits = model::load_exits(place, options.model, *model);
    for (const auto& [name, parameter] : exits->parameters()) require_fits(options, name, parameter, dtype);
    summary.parameters += exits->parameters().size();
  }
  throw_if_stop_requested(kStopped);
  model::write_new_directory(out, [&](const fs::path& temporary) {
    write_model(temporary, *model, opened, options, dtype);
    if (exits) write_exits(temporary, *exits, out.filename().string(), dtype);
    const model::ModelDirectory written(temporary);  // checks it
    write_file_atomic(temporary / "README.md", card(out.filename(), options, written, summary.dtype));
    throw_if_stop_requested(kStopped);
  });
  return summary;
}

// Refuses what is wrong with the name of a GGUF file. Errors: UserError.
void check_name(const fs::path& out) {
  if (out.extension() != ".gguf") {
    throw UserError({.where = "--out",
                     .what = "--format gguf writes one file, not a directory",
                     .expected = "a name that ends in .gguf",
                     .found = out.string()});
  }
  if (!fs::exists(out)) return;
  throw UserError({.where = out.string(),
                   .what = "exists already, and an export overwrites nothing",
                   .expected = "the name of a new file",
                   .hint = "choose another name, or remove the file"});
}

GgufType gguf_type(const ExportOptions& options, at::ScalarType stored) {
  if (options.dtype == kBlockType) return GgufType::kQ8_0;
  const at::ScalarType type = type_for(options, stored);
  return type == at::kHalf ? GgufType::kF16 : type == at::kBFloat16 ? GgufType::kBF16 : GgufType::kF32;
}

// Returns what a file says of itself: the model, its tokenizer, its chat template and its origin.
GgufValues values_of(const model::ModelDirectory& opened, const ExportOptions& options, GgufType type) {
  GgufValues values = gguf_settings(opened.config(), options.out.stem().string(), type);
  values.emplace_back("general.description", fmt::format("Exported by Draftsmith {} ({})", version(), git_commit()));
  const GgufValues tokens = gguf_tokenizer(options.model, opened.config().vocabulary);
  values.insert(values.end(), tokens.begin(), tokens.end());
  return values;
}

ExportSummary export_file(const model::ModelDirectory& opened, const ExportOptions& options) {
  check_name(options.out);
  const GgufType type = gguf_type(options, stored_type(opened));
  const auto model = load_whole(opened, at::kFloat);
  std::vector<GgufPlace> places;
  std::map<std::string, GgufTensor> tensors;
  for (const GgufTensor& tensor : gguf_tensors(opened.config())) {
    const at::Tensor values = to_gguf(tensor, *model);
    const GgufPlace& place = places.emplace_back(gguf_place(tensor, values, type));
    // A block's factor is fp16, and each of its numbers at most 127 times it.
    if (place.type == GgufType::kQ8_0) require_fits(options, tensor.name, values.div(127), at::kHalf);
    if (place.type != GgufType::kQ8_0) require_fits(options, tensor.name, values, scalar_type_of(place.type));
    tensors.emplace(tensor.name, tensor);
  }
  const at::Tensor factors = rope_factors(opened.config());
  if (factors.defined()) places.push_back({kRopeFactors, factors.sizes().vec(), GgufType::kF32});
  write_gguf(options.out, values_of(opened, options, type), places, [&](const GgufPlace& place) {
    throw_if_stop_requested(kStopped);
    return place.name == kRopeFactors ? factors : to_gguf(tensors.at(place.name), *model);
  });
  return {.dtype = gguf_type_name(type), .parameters = model->parameters().size()};
}

void check_options(const ExportOptions& options, const std::string& where, Problems& problems) {
  if (options.dtype != kBlockType || options.format == kGgufFormat) return;
  problems.add({.where = where,
                .what = "--dtype q8_0 is a type of GGUF files",
                .expected = "--format gguf together with it",
                .found = "--format " + options.format});
}

}  // namespace

Fields<ExportOptions> ExportOptions::fields() {
  using T = ExportOptions;
  return Fields<T>("export: flags of draftsmith export")
      .add("format", &T::format,
           fmt::format("What loads it: {}. hf: Transformers; vllm: the same, checked for vLLM's draft models; "
                       "gguf: one file for llama.cpp.",
                       fmt::join(export_formats().names(), ", ")))
      .add("dtype", &T::dtype, Choices{"stored", "fp32", "bf16", "fp16", kBlockType},
           "Type of the weights in the files; stored: unchanged; q8_0: gguf's blocks of 8-bit integers.")
      .add("target", &T::target, "Model directory of the target, for vllm's check, the card and the printed command.")
      .add("shard_megabytes", &T::shard_megabytes, Range{1, 1'000'000}, Unit{"MB"}, "Largest weight file.")
      .check(check_options);
}

ExportSummary export_model(const ExportOptions& options) {
  export_format_named(options.format);
  require_standalone(options.model, options.format);
  const model::ModelDirectory opened(options.model);
  check_model(opened, options);
  return options.format == kGgufFormat ? export_file(opened, options) : export_directory(opened, options);
}

}  // namespace draftsmith::recipes
