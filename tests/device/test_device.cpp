#include "tests/device/test_device.h"

#include <cstdlib>
#include <string>

#include "base/device.h"
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

}  // namespace draftsmith::on_device
