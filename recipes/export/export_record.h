// draftsmith/export.json: what an export wrote, so that it can be told later whether a directory is still that. It
// names every tensor with type, shape and hash, the other files with theirs, and the probes.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/files/weight_files.h"
#include "recipes/export/probes.h"

namespace draftsmith::recipes {

struct TensorRecord {
  std::string dtype{};  // as stored
  std::vector<int64_t> shape{};
  std::string sha256{};  // of its bytes in the file
  bool operator==(const TensorRecord&) const = default;
};

struct ExportRecord {
  std::string format{};                           // hf or vllm
  std::string date{};                             // UTC, ISO 8601
  std::map<std::string, TensorRecord> tensors{};  // by their names in the weight files
  std::map<std::string, std::string> files{};     // configuration, tokenizer and probe files -> SHA-256
  nlohmann::json probes{};                        // to_json(Probes)
  nlohmann::ordered_json proof{};                 // what was compared, and how it came out
};

// Whether a directory says of itself that it is an export.
bool is_export(const std::filesystem::path& directory);

std::filesystem::path record_file(const std::filesystem::path& directory);
std::filesystem::path probe_logits_file(const std::filesystem::path& directory);

std::map<std::string, TensorRecord> record_tensors(const model::WeightFiles& weights);

// Fills in the directory's tensors and files as they are now, and writes the record. The model card is not in it: it is
// there to be edited. Errors: RunError of writing.
void write_export_record(const std::filesystem::path& directory, ExportRecord record);

// Errors: UserError when there is none or it is damaged.
ExportRecord read_export_record(const std::filesystem::path& directory);

// Everything in which a directory differs from its record: each missing, added or changed tensor and file is a problem,
// and weight files that cannot be opened are. Errors: UserError when the record cannot be read.
std::vector<Problem> changes_since_export(const std::filesystem::path& directory);

// Whether the model still gives the logits stored for the probes, as problems. Loads the model. Errors: UserError.
std::vector<Problem> changed_logits(const std::filesystem::path& directory);

}  // namespace draftsmith::recipes
