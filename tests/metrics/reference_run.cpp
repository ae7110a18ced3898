#include "tests/metrics/reference_run.h"

#include <cstdlib>
#include <stdexcept>

#include <fmt/format.h>
#include <unistd.h>

#include "tests/support/paths.h"

namespace draftsmith::metrics {
namespace {

namespace fs = std::filesystem;

}  // namespace

std::optional<fs::path> run_reference(const std::string& command, std::string& why) {
  const fs::path python = test::peers_python();
  const fs::path data = test::data_dir();
  if (!fs::exists(python)) {
    why = "no Python with sacrebleu, rouge_score and nltk at " + python.string() + " (DRAFTSMITH_PEERS_PYTHON)";
    return std::nullopt;
  }
  if (!fs::exists(data / "multi30k")) {
    why = "no data at " + data.string() + " (DRAFTSMITH_DATA)";
    return std::nullopt;
  }
  const fs::path out = fs::temp_directory_path() / ("draftsmith_metrics_" + command + "_" + std::to_string(::getpid()));
  const std::string line = fmt::format("'{}' '{}' {} '{}' '{}' 2>'{}.log'", python.string(),
                                       (test::source_dir() / "tools/reference_metrics.py").string(), command,
                                       data.string(), out.string(), out.string());
  if (std::system(line.c_str()) != 0) {
    throw std::runtime_error("the reference script failed: " + line);
  }
  fs::remove(out.string() + ".log");
  return out;
}

}  // namespace draftsmith::metrics
