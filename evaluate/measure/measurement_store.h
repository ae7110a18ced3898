// Records of lines, and what an interrupted evaluation goes on from: counts and times on disk, as lines of
// measurements.jsonl in the directory of the results. Its first line identifies the suite.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "infer/loop/decode_stats.h"

namespace draftsmith::evaluate {

// Output, counts and times of one line under one setting. Of several samples, counts and times are sums, and `ids` is
// the first one.
struct LineRecord {
  std::vector<int64_t> ids;                      // new tokens, EOS included
  std::vector<int64_t> first_tokens = {};        // first new token of each sample; empty: not recorded
  infer::DecodeStats stats;                      // counts only; times are in `repetitions`
  int64_t prefill_runs = 0;                      // target runs of `stats` that were prefills and emitted a token
  int64_t turn = 0;                              // lines of one turn were timed one after the other
  std::vector<infer::PhaseSeconds> repetitions;  // empty: not timed
  // Times of the setting's baseline, each from the turn just before or behind that of the repetition with its index.
  // Empty for baselines.
  std::vector<infer::PhaseSeconds> baseline = {};
  std::vector<double> latencies = {};  // seconds of the whole batch, one a repetition; empty: unknown
  int64_t timed_again = 0;             // turns beside the baseline that were thrown away: the machine stood still
  // Tokens of the next batch's first windows (DecodeBatch::window); absent if windows do not go on across batches.
  std::optional<int64_t> window = std::nullopt;
  std::optional<std::string> failure = std::nullopt;  // defect of the model's numbers: no ids, no counts, not timed

  // Returns the repetition with the median total, of an even number the lower one in the middle.
  const infer::PhaseSeconds& median() const { return repetitions[median_index()]; }
  // Returns the index of that repetition. Errors: std::logic_error for a line that was not timed.
  size_t median_index() const;
  // Returns the latency of that repetition, in seconds; of lines without latencies its total.
  double latency() const;
  int64_t tokens() const { return stats.emitted; }
  // Returns output and counts. Errors of what reads them: nlohmann::json::exception for other values.
  nlohmann::json counts_json() const;
  static LineRecord from_counts(const nlohmann::json& json);
  // Returns the times: turn, repetitions, baseline, latencies, timed_again.
  nlohmann::json times_json() const;
  // Adds times that times_json() wrote behind those that are there.
  void add_times(const nlohmann::json& json);
};

// Records of a setting on a task, one for each line in order.
using SettingRecords = std::vector<LineRecord>;

// Adds the overhead of a batch to the last repetition of its records, each an equal share. The overhead is what remains
// of the `elapsed` seconds after all phases of all lines. Adds the repetition's latency.
void add_overhead(SettingRecords& batch, double elapsed);

// Returns the sum of the counts over all lines.
infer::DecodeStats sum_of_stats(const SettingRecords& run);

// Hint in the message of an evaluation that was stopped.
inline constexpr const char* kHowToGoOn = "finished measurements are kept; run the evaluation again to go on";

class MeasurementStore {
 public:
  // Parts of a measurement's name: what is measured, a task, a setting, a line.
  using Name = std::vector<std::string>;

  // Reads the file in `directory` if its key equals `key`, which identifies models, build and what all measurements
  // depend on, and empties it otherwise. Errors: UserError if another evaluation writes it, or it cannot be made;
  // RunError if it cannot be written.
  MeasurementStore(const std::filesystem::path& directory, const std::string& key);

  // Returns a finished measurement, or nullptr.
  const nlohmann::json* find(const Name& name) const;
  // Adds a measurement and writes it to the file at once. Errors: RunError if it cannot be written.
  void add(const Name& name, nlohmann::json measurement);
  // Returns the number of measurements that the constructor read.
  int64_t resumed() const { return resumed_; }
  // Removes the file after a complete evaluation.
  void remove();

 private:
  // Reads the finished measurements, and returns the bytes of whole lines.
  uintmax_t read();
  [[noreturn]] void refuse(const std::string& what) const;

  std::filesystem::path file_;
  FileLock lock_;
  std::string header_;
  std::ofstream stream_;
  std::map<Name, nlohmann::json> measured_;
  int64_t resumed_ = 0;
};

}  // namespace draftsmith::evaluate
