// draftsmith/export.json: the record of an export, with which a directory can be compared later. It contains type,
// shape and hash of every tensor, hashes of the other files, and the probes.
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
  std::string sha256{};  // hash of the bytes in the file
  bool operator==(const TensorRecord&) const = default;
};

struct ExportRecord {
  std::string format{};                           // hf or vllm
  std::string date{};                             // UTC, ISO 8601
  std::map<std::string, TensorRecord> tensors{};  // by name in the weight files
  std::map<std::string, std::string> files{};     // configuration, tokenizer and probe files -> SHA-256
  nlohmann::json probes{};                        // to_json(Probes)
  nlohmann::ordered_json proof{};                 // results of the comparisons
};

// Returns whether a directory contains the record of an export.
bool is_export(const std::filesystem::path& directory);

std::filesystem::path record_file(const std::filesystem::path& directory);
std::filesystem::path probe_logits_file(const std::filesystem::path& directory);

std::map<std::string, TensorRecord> record_tensors(const model::WeightFiles& weights);

// Adds the directory's current tensors and files to the record and writes it. The record omits the model card, which
// users may edit. Errors: RunError if writing fails.
void write_export_record(const std::filesystem::path& directory, ExportRecord record);

// Reads the record. Errors: UserError if it is missing or damaged.
ExportRecord read_export_record(const std::filesystem::path& directory);

// Compares a directory with its record. Returns one problem for each missing, added or changed tensor and file, and for
// weight files that cannot be opened. Errors: UserError if the record cannot be read.
std::vector<Problem> changes_since_export(const std::filesystem::path& directory);

// Loads the model and compares its logits with those stored for the probes. Returns differences as problems. Errors:
// UserError.
std::vector<Problem> changed_logits(const std::filesystem::path& directory);

}  // namespace draftsmith::recipes
