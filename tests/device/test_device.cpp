#include "tests/device/test_device.h"

#include <cstdlib>
#include <string>

#include "base/cuda_graph.h"
#include "base/device.h"
#include "base/device_graph.h"
#include "base/device_kernels.h"
#include "tests/standin/standin.h"

namespace draftsmith::on_device {
namespace {

std::string device_name() {
  const char* name = std::getenv("DRAFTSMITH_TEST_DEVICE");
  return name == nullptr || *name == '\0' ? "standin" : name;
}

}  // namespace

bool on_standin() {
  return device_name() == "standin";
}

c10::Device test_device() {
  return on_standin() ? standin::device() : choose_device(device_name(), "DRAFTSMITH_TEST_DEVICE");
}

void record_graphs(bool on) {
  const c10::Device device = test_device();
  want_recordings(on);  // also after a recording that failed
  if (on_standin()) return standin::record_graphs(on);
  if (device.is_cuda()) set_graph_recorder(device.type(), on ? cuda_graph_recorder() : GraphRecorder());
}

}  // namespace draftsmith::on_device
