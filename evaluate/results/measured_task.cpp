#include "evaluate/results/measured_task.h"

namespace draftsmith::evaluate {

const SettingRecords& MeasuredTask::own_greedy(const Setting& run) const {
  return records.at(greedy_of(run).label);
}

}  // namespace draftsmith::evaluate
