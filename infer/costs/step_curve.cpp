#include "infer/costs/step_curve.h"

#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include "base/environment.h"
#include "base/json.h"
#include "base/table.h"

namespace draftsmith::infer {

namespace {

constexpr const char* kFormat = "draftsmith step curve";
constexpr int64_t kVersion = 1;
constexpr int64_t kMost = 1'000'000'000;

// Throws a UserError for JSON that is no curve of this version.
void require_format(const nlohmann::json& json, const std::string& file) {
  const auto wrong = [&](const std::string& what, const std::string& expected, const nlohmann::json& found) {
    throw UserError({file, what, expected, brief(found), "`draftsmith bench --model DIR --curve FILE` writes one"});
  };
  if (!json.is_object()) wrong("this is not a step curve", "a JSON object", json);
  const nlohmann::json format = json.value("format", nlohmann::json());
  if (format != kFormat) wrong("this is not a step curve", fmt::format("\"format\": \"{}\"", kFormat), format);
  const nlohmann::json version = json.value("version", nlohmann::json());
  if (version != kVersion) wrong("the curve has an unknown version", fmt::format("\"version\": {}", kVersion), version);
}

// Reads the points, each of which must have more tokens than the one before.
std::vector<StepCurve::Point> read_points(const nlohmann::json& json, const std::string& file, Problems& problems) {
  const nlohmann::json list = json.value("curve", nlohmann::json());
  if (!list.is_array() || list.empty()) {
    problems.add({file, "'curve' has an unusable value", "a list of at least one step", brief(list), ""});
    return {};
  }
  std::vector<StepCurve::Point> points;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("{}: curve[{}]", file, i);
    JsonReader reader(list[i], where, problems);
    const int64_t least = points.empty() ? 1 : std::min(points.back().tokens + 1, kLongestStep);
    const int64_t most = points.empty() ? 1 : kLongestStep;
    points.push_back({reader.get_int("tokens", {least, most}), reader.get_double("seconds")});
    if (reader.has("seconds") && list[i]["seconds"].is_number() && points.back().seconds <= 0) {
      problems.add({where, "'seconds' has an unusable value", "a number above 0", brief(list[i]["seconds"]), ""});
    }
  }
  return points;
}

}  // namespace

std::vector<double> StepCurve::seconds() const {
  std::vector<double> all;
  for (size_t i = 0; i < points.size(); ++i) {
    const Point& to = points[i];
    const Point& from = points[i == 0 ? 0 : i - 1];
    const auto steps = static_cast<double>(std::max<int64_t>(to.tokens - from.tokens, 1));
    for (int64_t tokens = from.tokens + 1; tokens < to.tokens; ++tokens) {
      all.push_back(from.seconds + static_cast<double>(tokens - from.tokens) / steps * (to.seconds - from.seconds));
    }
    all.push_back(to.seconds);
  }
  return all;
}

bool StepCurve::measured_like(const StepCurve& other) const {
  return processor == other.processor && threads == other.threads && rows == other.rows;
}

std::string StepCurve::description() const {
  return fmt::format("{}, {}, {}, {} {}", model, dtype, processor, threads, threads == 1 ? "thread" : "threads");
}

void write_step_curve(const std::filesystem::path& file, const StepCurve& curve) {
  nlohmann::ordered_json json{
      {"format", kFormat},    {"version", kVersion},          {"model", curve.model},
      {"dtype", curve.dtype}, {"processor", curve.processor}, {"threads", curve.threads},
      {"batch", curve.rows},  {"length", curve.length},       {"source_length", curve.source},
      {"date", now_utc()},    {"commit", git_commit()},       {"curve", nlohmann::ordered_json::array()}};
  for (const StepCurve::Point& point : curve.points) {
    json["curve"].push_back(
        {{"tokens", point.tokens}, {"seconds", point.seconds}, {"relative", curve.relative(point)}});
  }
  write_json(file, json);
}

StepCurve read_step_curve(const std::filesystem::path& file) {
  const nlohmann::json json = load_json(file, {.max_bytes = 10'000'000});
  require_format(json, file.string());
  Problems problems;
  JsonReader reader(json, file.string(), problems);
  StepCurve curve;
  curve.model = reader.get_string("model");
  curve.dtype = reader.get_string("dtype");
  curve.processor = reader.get_string("processor");
  curve.threads = reader.get_int("threads", {1, kMost});
  curve.rows = reader.get_int("batch", {1, kMost});
  curve.length = reader.get_int("length", {1, kMost});
  curve.source = reader.get_int("source_length", {0, kMost});
  curve.points = read_points(json, file.string(), problems);
  problems.throw_if_any();
  return curve;
}

bool is_step_curve(const std::filesystem::path& file) {
  std::string head(256, '\0');
  std::ifstream stream(file, std::ios::binary);
  stream.read(head.data(), std::ssize(head));
  return head.find(fmt::format("\"{}\"", kFormat)) != std::string::npos;
}

std::string describe_step_curve(const StepCurve& curve) {
  Table table({{"tokens"}, {"ms"}, {"x one"}});
  for (const StepCurve::Point& point : curve.points) {
    table.add_row({std::to_string(point.tokens), fmt::format("{:.3f}", 1e3 * point.seconds),
                   fmt::format("{:.2f}", curve.relative(point))});
  }
  const std::string source = curve.source > 0 ? fmt::format(", sources of {} tokens", curve.source) : "";
  return wrapped("step curve of " + curve.description(), 100) +
         fmt::format("  batch {}, {} tokens in the cache{}\n", curve.rows, curve.length, source) + table.text();
}

}  // namespace draftsmith::infer
