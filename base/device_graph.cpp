#include "base/device_graph.h"

#include <map>
#include <mutex>

namespace draftsmith {
namespace {

std::mutex recorders_mutex;

std::map<c10::DeviceType, GraphRecorder>& recorders() {
  static std::map<c10::DeviceType, GraphRecorder> all{{c10::DeviceType::CUDA, cuda_graph_recorder()}};
  return all;
}

// Returns an empty function for a type without a recorder.
GraphRecorder recorder_of(c10::DeviceType type) {
  const std::scoped_lock lock(recorders_mutex);
  return recorders()[type];
}

}  // namespace

void set_graph_recorder(c10::DeviceType type, GraphRecorder recorder) {
  const std::scoped_lock lock(recorders_mutex);
  recorders()[type] = std::move(recorder);
}

bool records_graphs(c10::Device device) {
  return !device.is_cpu() && wants_recordings() && recorder_of(device.type());
}

std::unique_ptr<RecordedWork> record_graph(c10::Device device, WorkMemory& memory, const std::function<void()>& work) {
  std::string reason;
  try {
    auto recorded = recorder_of(device.type())(device, memory, work);
    count_recording(recorded->nodes());
    return recorded;
  } catch (const std::exception& error) {
    reason = error.what();
  }
  want_recordings(false);
  report_fallback("steps are not recorded as graphs, which is slower", reason);
  return nullptr;
}

void RepeatedWork::run(c10::Device device, WorkMemory& memory, const std::function<void()>& work) {
  if (!recorded_ && done_before_ && records_graphs(device)) recorded_ = record_graph(device, memory, work);
  if (recorded_) {
    recorded_->replay();
  } else {
    work();
  }
  done_before_ = true;
}

void RepeatedWork::clear() {
  done_before_ = false;
  recorded_.reset();
}

}  // namespace draftsmith
