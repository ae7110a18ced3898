#include "recipes/export/export_record.h"

#include <fmt/format.h>

#include "base/environment.h"
#include "base/files.h"
#include "base/json.h"
#include "base/sha256.h"
#include "model/files/checkpoint.h"
#include "model/kinds/exits.h"
#include "recipes/done_file.h"

namespace draftsmith::recipes {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "draftsmith";
constexpr int64_t kVersion = 1;
// The order of sums depends on the machine and the number of threads. A damaged weight changes logits far more.
constexpr double kLogitsTolerance = 1e-3;
constexpr const char* kHint = "fetch or export the model again";

bool holds_weights(const fs::path& file) {
  const std::string name = file.filename().string();
  return file.extension() == ".safetensors" || file.extension() == ".bin" || name.ends_with(".index.json");
}

// Returns the files that programs read, in the directory, in draftsmith/ and in exits, except the record. Other files
// (the card, a licence, a picture) belong to the user.
bool is_recorded(const fs::path& file) {
  const std::string ending = file.extension().string();
  for (const char* known : {".json", ".model", ".safetensors", ".bin", ".jinja", ".py"}) {
    if (ending == known) return true;
  }
  return file.filename() == "merges.txt";
}

void hash_folder(const fs::path& folder, const std::string& prefix, std::map<std::string, std::string>& hashes) {
  if (!fs::is_directory(folder)) return;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = prefix + entry.path().filename().string();
    const bool weights = prefix.empty() && holds_weights(entry.path());  // hashed tensor by tensor
    if (entry.is_regular_file() && is_recorded(entry.path()) && !weights && name != "draftsmith/export.json") {
      hashes[name] = sha256_file(entry.path());
    }
  }
}

std::map<std::string, std::string> hash_exported_files(const fs::path& directory) {
  std::map<std::string, std::string> hashes;
  hash_folder(directory, "", hashes);
  hash_folder(directory / kFolder, std::string(kFolder) + "/", hashes);
  const fs::path exits = model::exits_directory(directory);
  hash_folder(exits, exits.lexically_relative(directory).string() + "/", hashes);
  return hashes;
}

std::string text_of(const TensorRecord& tensor) {
  return fmt::format("{} {} sha256 {}", tensor.dtype, model::shape_text(tensor.shape), tensor.sha256.substr(0, 16));
}

void add_changed_tensors(const fs::path& directory, const ExportRecord& record, std::vector<Problem>& problems) {
  const model::WeightFiles weights(directory);
  const auto now = record_tensors(weights);
  for (const auto& [name, written] : record.tensors) {
    const auto found = now.find(name);
    const std::string where = fmt::format("{}: tensor '{}'", directory.string(), model::printable(name));
    if (found == now.end()) {
      problems.push_back({.where = where, .what = "is missing", .expected = text_of(written), .hint = kHint});
    } else if (found->second != written) {
      problems.push_back({.where = weights.where(name),
                          .what = "differs from the export",
                          .expected = text_of(written),
                          .found = text_of(found->second),
                          .hint = kHint});
    }
  }
  for (const auto& [name, tensor] : now) {
    if (record.tensors.contains(name)) continue;
    problems.push_back({.where = weights.where(name), .what = "was added after the export", .found = text_of(tensor)});
  }
}

nlohmann::ordered_json to_json(const std::map<std::string, TensorRecord>& tensors) {
  auto json = nlohmann::ordered_json::object();
  for (const auto& [name, tensor] : tensors) {
    json[name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"sha256", tensor.sha256}};
  }
  return json;
}

}  // namespace

bool is_export(const fs::path& directory) {
  return fs::exists(record_file(directory));
}

fs::path record_file(const fs::path& directory) {
  return directory / kFolder / "export.json";
}

fs::path probe_logits_file(const fs::path& directory) {
  return directory / kFolder / "probes.safetensors";
}

std::map<std::string, TensorRecord> record_tensors(const model::WeightFiles& weights) {
  std::map<std::string, TensorRecord> records;
  for (const auto& [name, file] : weights.tensors()) {
    const auto bytes = weights.bytes(name);
    const auto& entry = weights.entry(name);
    records[name] = {entry.dtype, entry.shape,
                     sha256(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()))};
  }
  return records;
}

void write_export_record(const fs::path& directory, ExportRecord record) {
  record.tensors = record_tensors(model::WeightFiles(directory));
  record.files = hash_exported_files(directory);
  const nlohmann::ordered_json json = {
      {"version", kVersion},     {"draftsmith", version()}, {"commit", git_commit()},
      {"format", record.format}, {"date", record.date},     {"proof", record.proof},
      {"probes", record.probes}, {"files", record.files},   {"tensors", to_json(record.tensors)}};
  write_json(record_file(directory), json);
}

ExportRecord read_export_record(const fs::path& directory) {
  const fs::path file = record_file(directory);
  const nlohmann::json json = load_json(file);
  try {
    if (json.at("version").get<int64_t>() != kVersion) {
      throw UserError({.where = file.string(),
                       .what = "was written by another version of Draftsmith",
                       .expected = fmt::format("version {}", kVersion),
                       .found = json.at("version").dump(),
                       .hint = "export the model again"});
    }
    ExportRecord record{.format = json.at("format"),
                        .date = json.at("date"),
                        .files = json.at("files"),
                        .probes = json.at("probes"),
                        .proof = json.at("proof")};
    for (const auto& [name, tensor] : json.at("tensors").items()) {
      record.tensors[name] = {tensor.at("dtype"), tensor.at("shape"), tensor.at("sha256")};
    }
    return record;
  } catch (const nlohmann::json::exception& error) {
    throw UserError({.where = file.string(),
                     .what = "damaged record of an export",
                     .expected = "what `draftsmith export` writes",
                     .found = error.what(),
                     .hint = kHint});
  }
}

std::vector<Problem> changes_since_export(const fs::path& directory) {
  const ExportRecord record = read_export_record(directory);
  std::vector<Problem> problems;
  problems = changed_files(directory, record.files, hash_exported_files(directory), "the export");
  try {
    add_changed_tensors(directory, record, problems);
  } catch (const UserError& error) {  // the weights cannot be opened; other files are still compared
    problems.insert(problems.end(), error.problems().begin(), error.problems().end());
  }
  return problems;
}

std::vector<Problem> changed_logits(const fs::path& directory) {
  const ExportRecord record = read_export_record(directory);
  const auto model = model::load_model(directory, {.pack = false});
  const Probes probes = probes_from_json(record.probes, model->config(), record_file(directory).string());
  const at::Tensor now = probe_logits(*model, probes);
  const at::Tensor stored = read_probe_logits(probe_logits_file(directory), now.sizes().vec());
  const double difference = relative_difference(now, stored);
  if (difference <= kLogitsTolerance) return {};
  return {{.where = directory.string(),
           .what = "the model gives other logits than when it was exported",
           .expected = fmt::format("equal up to {:.0e} of the largest", kLogitsTolerance),
           .found = fmt::format("a difference of {:.2e}", difference),
           .hint = kHint}};
}

}  // namespace draftsmith::recipes
