#include "base/device_graph.h"

#include <map>
#include <mutex>

namespace draftsmith {
namespace {

struct Recorders {
  std::mutex mutex;
  std::map<c10::DeviceType, GraphRecorder> by_type;

  Recorders() {
    if (const GraphRecorder cuda = cuda_graph_recorder()) by_type[c10::DeviceType::CUDA] = cuda;
  }
};

Recorders& recorders() {
  static Recorders all;
  return all;
}

GraphRecorder recorder_of(c10::DeviceType type) {
  const std::scoped_lock lock(recorders().mutex);
  const auto found = recorders().by_type.find(type);
  return found == recorders().by_type.end() ? GraphRecorder() : found->second;
}

}  // namespace

void set_graph_recorder(c10::DeviceType type, GraphRecorder recorder) {
  const std::scoped_lock lock(recorders().mutex);
  recorders().by_type[type] = std::move(recorder);
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
