#include "evaluate/measure/measurement_store.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/logging.h"
#include "base/signals.h"
#include "evaluate/measure/failures.h"

namespace draftsmith::evaluate {
namespace {

nlohmann::json steps_json(const infer::StepCounts& counts) {
  return {counts.passes, counts.steps, counts.tokens, counts.logits, counts.keys, counts.pairs};
}

infer::StepCounts steps_of(const nlohmann::json& json) {
  return {.passes = json.at(0),
          .steps = json.at(1),
          .tokens = json.at(2),
          .logits = json.at(3),
          .keys = json.at(4),
          .pairs = json.at(5)};
}

nlohmann::json seconds_json(const infer::PhaseSeconds& seconds) {
  return {seconds.encode, seconds.prefill, seconds.draft, seconds.verify, seconds.other};
}

}  // namespace

size_t LineRecord::median_index() const {
  if (repetitions.empty()) throw std::logic_error("median of a line that was not timed");
  std::vector<size_t> order(repetitions.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return repetitions[a].total() < repetitions[b].total(); });
  return order[(order.size() - 1) / 2];
}

double LineRecord::latency() const {
  const size_t middle = median_index();
  return middle < latencies.size() ? latencies[middle] : repetitions[middle].total();
}

nlohmann::json LineRecord::counts_json() const {
  nlohmann::json counts;
  for (const auto count : infer::kStatsCounts) counts.push_back(stats.*count);
  nlohmann::json json{{"ids", ids},
                      {"first_tokens", first_tokens},
                      {"counts", counts},
                      {"prefill_runs", prefill_runs},
                      {"overlap", stats.overlap_sum},
                      {"histogram", stats.accepted_histogram},
                      {"examined", stats.examined_by_position},
                      {"accepted", stats.accepted_by_position},
                      {"exits", stats.exits_by_layer},
                      {"target_steps", steps_json(stats.target_steps)},
                      {"draft_steps", steps_json(stats.draft_steps)}};
  if (window) json["window"] = *window;
  if (failure) json["failure"] = *failure;
  return json;
}

LineRecord LineRecord::from_counts(const nlohmann::json& json) {
  LineRecord record;
  json.at("ids").get_to(record.ids);
  json.at("first_tokens").get_to(record.first_tokens);
  for (size_t i = 0; i < infer::kStatsCounts.size(); ++i) {
    json.at("counts").at(i).get_to(record.stats.*infer::kStatsCounts[i]);
  }
  json.at("prefill_runs").get_to(record.prefill_runs);
  json.at("overlap").get_to(record.stats.overlap_sum);
  json.at("histogram").get_to(record.stats.accepted_histogram);
  json.at("examined").get_to(record.stats.examined_by_position);
  json.at("accepted").get_to(record.stats.accepted_by_position);
  json.at("exits").get_to(record.stats.exits_by_layer);
  record.stats.target_steps = steps_of(json.at("target_steps"));
  record.stats.draft_steps = steps_of(json.at("draft_steps"));
  if (json.contains("window")) record.window = json.at("window").get<int64_t>();
  if (json.contains("failure")) record.failure = json.at("failure").get<std::string>();
  return record;
}

nlohmann::json LineRecord::times_json() const {
  nlohmann::json json{{"turn", turn}, {"seconds", nlohmann::json::array()}};
  for (const auto& repetition : repetitions) json["seconds"].push_back(seconds_json(repetition));
  if (!latencies.empty()) json["latencies"] = latencies;
  if (timed_again > 0) json["timed_again"] = timed_again;
  return json;
}

void LineRecord::set_times(const nlohmann::json& json) {
  json.at("turn").get_to(turn);
  timed_again = json.value("timed_again", int64_t{0});
  latencies = json.value("latencies", std::vector<double>());
  repetitions.clear();
  for (const auto& repetition : json.at("seconds")) {
    repetitions.push_back({.encode = repetition.at(0),
                           .prefill = repetition.at(1),
                           .draft = repetition.at(2),
                           .verify = repetition.at(3),
                           .other = repetition.at(4)});
  }
}

void add_overhead(SettingRecords& batch, double elapsed) {
  double known = 0;
  for (const LineRecord& line : batch) known += line.repetitions.back().total();
  const double share = batch.empty() ? 0 : std::max(elapsed - known, 0.0) / static_cast<double>(batch.size());
  for (LineRecord& line : batch) {
    line.repetitions.back().other += share;
    line.latencies.push_back(known + share * static_cast<double>(batch.size()));
  }
}

infer::DecodeStats sum_of_stats(const SettingRecords& run) {
  infer::DecodeStats total;
  for (const LineRecord& line : run) total += line.stats;
  return total;
}

namespace {

namespace fs = std::filesystem;

// A line is {"name":"...","measured":...}. Quotes inside of the name are escaped, so the first kMeasured ends it.
constexpr std::string_view kName = R"({"name":)";
constexpr std::string_view kMeasured = R"(,"measured":)";

std::string line_of(const std::string& name, const std::string& measured) {
  return fmt::format("{}{}{}{}}}", kName, nlohmann::json(name).dump(), kMeasured, measured);
}

std::string failure_name(const std::string& owner) {
  return measurement_name({"failure", owner});
}

bool failed(const Measurement& one, const MeasurementStore& store) {
  return !one.owner.empty() && store.failure(one.owner);
}

// Adds the measurement to the store, or its owner's failure.
void add_measured(const Measurement& one, MeasurementStore& store) {
  nlohmann::json measured;
  const auto measure = [&] { measured = one.measure(); };
  if (one.owner.empty()) {
    measure();
  } else if (const auto message = failure_of(measure)) {
    log_warning("{} failed: {}", one.owner, *message);
    return store.add_failure(one.owner, *message);
  }
  store.add(one.name, measured);
}

}  // namespace

std::string measurement_name(const std::vector<std::string>& parts) {
  return nlohmann::json(parts).dump();
}

MeasurementStore::MeasurementStore(const fs::path& directory, const std::string& key)
    : file_(directory / "measurements.jsonl"), header_(nlohmann::json{{"key", key}}.dump()) {
  const uintmax_t whole = read();
  const std::string failures = failure_name("").substr(0, failure_name("").size() - 3);  // without quotes and bracket
  std::erase_if(measured_, [&](const auto& one) { return one.first.starts_with(failures); });
  resumed_ = std::ssize(measured_);
  std::error_code failed;
  if (whole > 0) fs::resize_file(file_, whole, failed);
  stream_.open(file_, whole > 0 ? std::ios::app : std::ios::trunc);
  if (whole == 0) stream_ << header_ << "\n" << std::flush;
  if (!stream_ || failed) refuse("the file of measurements cannot be written");
}

uintmax_t MeasurementStore::read() {
  std::ifstream input(file_);
  uintmax_t done = 0;
  std::string line;
  while (std::getline(input, line) && !input.eof()) {  // the last line of a killed evaluation may be cut off
    if (done == 0) {
      if (line != header_) return done;
    } else {
      const size_t end = line.find(kMeasured);
      if (end == std::string::npos || !line.starts_with(kName) || !nlohmann::json::accept(line)) {
        log_warning("{}: a damaged measurement and what follows it is measured again", file_.string());
        return done;
      }
      const size_t begin = end + kMeasured.size();
      const auto name = nlohmann::json::parse(line.substr(kName.size(), end - kName.size())).get<std::string>();
      measured_[name] = line.substr(begin, line.size() - 1 - begin);
    }
    done += line.size() + 1;
  }
  return done;
}

void MeasurementStore::refuse(const std::string& what) const {
  throw RunError({.where = file_.string(), .what = what, .hint = "is the disk full?"});
}

nlohmann::json MeasurementStore::at(const std::string& name) const {
  const auto found = measured_.find(name);
  if (found == measured_.end()) throw std::logic_error("not measured: " + name);
  return nlohmann::json::parse(found->second);
}

void MeasurementStore::add(const std::string& name, const nlohmann::json& measurement) {
  std::string text = measurement.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  stream_ << line_of(name, text) << "\n" << std::flush;
  if (!stream_) refuse("a measurement could not be written");
  measured_[name] = std::move(text);
}

void MeasurementStore::add_failure(const std::string& owner, const std::string& message) {
  add(failure_name(owner), message);
}

std::optional<std::string> MeasurementStore::failure(const std::string& owner) const {
  const std::string name = failure_name(owner);
  return has(name) ? std::optional(at(name).get<std::string>()) : std::nullopt;
}

void MeasurementStore::remove() {
  stream_.close();
  std::error_code ignored;
  fs::remove(file_, ignored);
}

void measure_missing(const std::vector<Measurement>& measurements, MeasurementStore& store, const SuiteContext& context,
                     const std::string& title, const std::string& unit) {
  int64_t total = 0, done = 0;
  for (const Measurement& one : measurements) {
    total += one.size;
    if (store.has(one.name)) done += one.size;
  }
  if (done == total) return;
  Progress progress({.style = progress_style(context.quiet || title.empty()),
                     .title = title,
                     .unit = unit,
                     .total = total,
                     .done_before = done});
  for (const Measurement& one : measurements) {
    if (store.has(one.name)) continue;
    throw_if_stop_requested(kHowToGoOn);
    if (!failed(one, store)) add_measured(one, store);
    progress.advance(one.size);
  }
  progress.finish();
}

}  // namespace draftsmith::evaluate
