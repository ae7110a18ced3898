#include "train/run_record.h"

#include <algorithm>
#include <array>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "base/json.h"
#include "base/sha256.h"

namespace draftsmith::train {

namespace {

using Json = nlohmann::ordered_json;
using Texts = std::map<std::string, std::string>;

// Settings that a run may change when it continues another; a name stands for its table too.
constexpr std::array kMayDiffer = {"length",       "optimizer.lr", "schedule",        "clip_norm",  "precision",
                                   "reduce_dtype", "nonfinite",    "nonfinite_limit", "validation", "keep"};
constexpr const char* kMayDifferText =
    "length, optimizer.lr, schedule, clip_norm, precision, reduce_dtype, nonfinite, nonfinite_limit, validation and "
    "keep may differ";
// Settings of a validation that change no measure.
constexpr std::array kNoMeasure = {"every", "patience"};

bool may_differ(const std::string& name) {
  return std::any_of(kMayDiffer.begin(), kMayDiffer.end(),
                     [&](const std::string& allowed) { return name == allowed || name.starts_with(allowed + "."); });
}

// Adds every value by its dotted name. Lists are values, and tables in them have sorted keys, as those of a file.
void flatten(const Json& json, const std::string& prefix, Texts& texts) {
  for (const auto& [key, value] : json.items()) {
    if (value.is_object()) {
      flatten(value, prefix + key + ".", texts);
    } else {
      texts[prefix + key] = value.is_null() ? "none" : nlohmann::json::parse(value.dump()).dump();
    }
  }
}

Texts flattened(const Json& training) {
  Texts texts;
  flatten(training, "", texts);
  return texts;
}

Texts texts_at(const nlohmann::json& json, const std::string& key, const std::string& where, Problems& problems) {
  Texts texts;
  if (!json.contains(key)) {
    problems.add({.where = where, .what = "'" + key + "' is missing"});
    return texts;
  }
  for (const auto& [name, value] : json.at(key).items()) {
    if (value.is_string()) {
      texts[name] = value;
    } else {
      problems.add({.where = where, .what = "'" + key + "' does not hold texts", .found = value.dump()});
    }
  }
  return texts;
}

// The settings that decide a validation's measures. (Texts, since files do not keep the order of keys.)
Texts measures_of(const RunRecord& record) {
  Texts validation;
  if (record.training.contains("validation")) flatten(record.training.at("validation"), "", validation);
  for (const char* name : kNoMeasure) validation.erase(name);
  return validation;
}

std::string size_text(const data::Corpus& corpus) {
  return fmt::format("{}, {} of {}", corpus.size(), corpus.info().target_tokens, corpus.info().tokenizer_hash);
}

}  // namespace

RunRecord record_run(const TrainerInputs& inputs, const TrainOptions& options) {
  RunRecord record{.identity = sha256(inputs.identity + options_hash(options)),
                   .threads = at::get_num_threads(),
                   .training = options_to_json(options, /*results_only=*/true),
                   .inputs = inputs.shared,
                   .validated = inputs.validated};
  record.inputs["examples and tokens of the corpus"] = size_text(inputs.corpus);
  if (inputs.validation) record.validated["examples and tokens"] = size_text(*inputs.validation);
  return record;
}

void to_json(Json& json, const RunRecord& record) {
  json["identity"] = record.identity;
  json["threads"] = record.threads;
  json["training"] = record.training;
  json["inputs"] = record.inputs;
  json["validated"] = record.validated;
}

RunRecord run_record_from_json(const nlohmann::json& json, const std::string& where, Problems& problems) {
  JsonReader reader(json, where, problems);
  RunRecord record{.identity = reader.get_string("identity"), .threads = reader.get_int("threads", {.min = 1})};
  if (!json.is_object()) return record;
  if (json.contains("training") && json.at("training").is_object()) {
    record.training = Json::parse(json.at("training").dump());
  } else {
    problems.add({.where = where, .what = "'training' is no object with the run's settings"});
  }
  record.inputs = texts_at(json, "inputs", where, problems);
  record.validated = texts_at(json, "validated", where, problems);
  return record;
}

void check_continues(const RunRecord& own, const RunRecord& parent, Problems& problems) {
  const auto compare = [&](const std::string& where, const std::string& found, const std::string& expected,
                           const std::string& hint) {
    if (found == expected) return;
    problems.add({.where = where,
                  .what = "differs from the run that `continue_from` names",
                  .expected = expected,
                  .found = found,
                  .hint = hint});
  };
  Texts before = flattened(parent.training);
  for (const auto& [name, value] : flattened(own.training)) {
    if (!may_differ(name)) compare("training." + name, value, before[name], kMayDifferText);
  }
  for (const auto& [name, value] : own.inputs) {
    const auto found = parent.inputs.find(name);
    if (found != parent.inputs.end()) {
      compare(name, value, found->second, "a run that continues another has the same model and data");
    }
  }
}

bool validate_alike(const RunRecord& own, const RunRecord& parent) {
  return measures_of(own) == measures_of(parent) && own.validated == parent.validated;
}

}  // namespace draftsmith::train
