#include "evaluate/results/measured_task.h"

namespace draftsmith::evaluate {

const SettingRecords& MeasuredTask::own_greedy(const Setting& setting) const {
  return records.at(greedy_of(setting).label);
}

}  // namespace draftsmith::evaluate
