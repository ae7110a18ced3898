#include "distributed/patient_calls.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace draftsmith {
namespace {

TEST(PatientCalls, ReturnWhatTheCallReturnsAndThrowWhatItThrows) {
  PatientCalls calls(std::chrono::seconds(60), "silence");
  for (int i = 0; i < 100; ++i) EXPECT_EQ(calls.run([i] { return std::to_string(i); }), std::to_string(i));
  EXPECT_THROW(calls.run([]() -> int { throw std::out_of_range("beyond"); }), std::out_of_range);
  EXPECT_EQ(calls.run([] { return 7; }), 7);
}

TEST(PatientCalls, GiveUpOnACallThatDoesNotReturn) {
  const auto over = std::make_shared<std::atomic<bool>>(false);
  {
    PatientCalls calls(std::chrono::seconds(0), "no answer");
    const auto stuck = [over] {
      while (!*over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    EXPECT_THROW(calls.run(stuck), NoAnswer);
    EXPECT_THROW(calls.run([] { return 1; }), NoAnswer) << "the thread is still in the call before";
  }  // which does not wait for it
  EXPECT_FALSE(*over);
  *over = true;
}

}  // namespace
}  // namespace draftsmith
