#include "evaluate/suite/engagement_options.h"

#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace draftsmith::evaluate {

namespace {

void check_thresholds(const std::vector<double>& thresholds, const std::string& where, Problems& problems) {
  if (std::set<double>(thresholds.begin(), thresholds.end()).size() == thresholds.size()) return;
  problems.add({where, "a threshold is given twice", "each threshold once",
                fmt::format("[{}]", fmt::join(thresholds, ", ")), ""});
}

}  // namespace

Fields<EngagementTable> EngagementTable::fields() {
  using E = EngagementTable;
  return Fields<E>("engagement of the large model")
      .add("name", &E::name, "Name in files and results, where there are several.")
      .add("task", &E::task, "Task that is decoded and scored; empty: the first.")
      .add("drafter", &E::drafter, Required{}, "Small model whose tokens the suite's model replaces.")
      .add("oracle", &E::oracle, Range{0, 1},
           "Thresholds of the oracle: the large model decides where it gives the small one's token a lower "
           "probability; 0: never.")
      .add("fallback", &E::fallback, Range{0, 1},
           "Thresholds of fallback: the large model decides where the small one's largest probability is lower.")
      .add("lines", &E::lines, Range{0}, Unit{"lines"}, "First lines of the task; 0: all.")
      .check([](const E& table, const std::string& where, Problems& problems) {
        const std::string dot = where.empty() ? "" : where + ".";
        check_thresholds(table.oracle, dot + "oracle", problems);
        check_thresholds(table.fallback, dot + "fallback", problems);
        if (!table.oracle.empty() || !table.fallback.empty()) return;
        problems.add({where, "there is nothing to measure", "thresholds of oracle or fallback", "none", ""});
      });
}

}  // namespace draftsmith::evaluate
