#include "evaluate/results/evaluation_files.h"

#include <string>

#include "base/files.h"
#include "base/json.h"
#include "evaluate/report/report.h"
#include "evaluate/results/lines_file.h"
#include "evaluate/results/summary.h"

namespace draftsmith::evaluate {

void write_evaluation(const Results& results, const std::vector<MeasuredTask>& tasks,
                      const std::filesystem::path& out_dir) {
  make_directories(out_dir / "hyp");
  for (const auto& task : tasks) {
    for (const auto& row : task.rows) {
      std::string lines;
      for (const auto& line : task.hypotheses.at(row.settings.label)) lines += line + "\n";
      write_file_atomic(out_dir / hypotheses_file(*task.task, row), lines);
    }
  }
  std::string lines;
  for (const auto& task : tasks) lines += lines_jsonl(task);
  write_file_atomic(out_dir / "lines.jsonl", lines);
  for (const auto& rates : results.match_rates) write_match_rates(rates, out_dir);
  for (const auto& curve : results.engagement) write_engagement(curve, out_dir);
  write_file_atomic(out_dir / "results.csv", results_csv(results));
  write_file_atomic(out_dir / "report.html", report_html(results));
  write_json(out_dir / "results.json", to_json(results));
}

}  // namespace draftsmith::evaluate
