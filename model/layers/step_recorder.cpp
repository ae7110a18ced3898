#include "model/layers/step_recorder.h"

#include <utility>

namespace draftsmith::model {
namespace {

thread_local StepRecorder* recorder_of_thread = nullptr;

}  // namespace

StepRecorder* StepRecorder::current() {
  return recorder_of_thread;
}

StepRecording::StepRecording(StepRecorder* recorder) : before_(std::exchange(recorder_of_thread, recorder)) {}

StepRecording::~StepRecording() {
  recorder_of_thread = before_;
}

}  // namespace draftsmith::model
