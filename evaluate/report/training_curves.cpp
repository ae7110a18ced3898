#include "evaluate/report/training_curves.h"

#include <filesystem>
#include <fstream>

#include "evaluate/suite/names.h"

namespace draftsmith::evaluate {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kMostCurvePoints = 400;
constexpr uintmax_t kLargestFile = 64'000'000;  // bytes

// Returns every n-th point, so that at most kMostCurvePoints are left, and the last one.
std::vector<std::pair<double, double>> thinned(const std::vector<std::pair<double, double>>& points) {
  const size_t stride = points.size() / kMostCurvePoints + 1;
  std::vector<std::pair<double, double>> kept;
  for (size_t i = 0; i < points.size(); ++i) {
    if (i % stride == 0 || i + 1 == points.size()) kept.push_back(points[i]);
  }
  return kept;
}

bool has_number(const json& object, const char* key) {
  return object.is_object() && object.contains(key) && object.at(key).is_number();
}

TrainingCurve read_curve(const std::string& model, const fs::path& file) {
  TrainingCurve curve{.model = model, .training = {}, .validation = {}};
  std::error_code unreadable;
  if (fs::file_size(file, unreadable) > kLargestFile || unreadable) return curve;
  std::ifstream input(file);
  for (std::string line; std::getline(input, line);) {
    const json metrics = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!has_number(metrics, "step")) continue;
    const double step = metrics.at("step").get<double>();
    if (has_number(metrics, "loss")) curve.training.emplace_back(step, metrics.at("loss").get<double>());
    if (!metrics.contains("validation") || !has_number(metrics.at("validation"), "loss")) continue;
    curve.validation.emplace_back(step, metrics.at("validation").at("loss").get<double>());
  }
  curve.training = thinned(curve.training);
  curve.validation = thinned(curve.validation);
  return curve;
}

}  // namespace

std::vector<TrainingCurve> training_curves(const Results& results) {
  std::vector<std::pair<std::string, std::string>> models{
      {kTargetName, results.environment_text("model").value_or("")}};
  const auto drafters = results.environment.find("drafters");
  if (drafters != results.environment.end() && drafters->is_object()) {
    for (const auto& [name, directory] : drafters->items()) {
      if (directory.is_string()) models.emplace_back(name, directory.get<std::string>());
    }
  }
  std::vector<TrainingCurve> curves;
  for (const auto& [name, directory] : models) {
    const fs::path stage = fs::path(directory).parent_path();
    if (stage.empty()) continue;
    TrainingCurve curve = read_curve(name, stage / "metrics.jsonl");
    if (!curve.training.empty() || !curve.validation.empty()) curves.push_back(std::move(curve));
  }
  return curves;
}

}  // namespace draftsmith::evaluate
