// The window `fixed`: always G tokens (Leviathan et al., Algorithm 1; BiLD without fallback).
#pragma once

#include "infer/windows/window_rule.h"

namespace draftsmith::infer {

class FixedWindow : public WindowRule {
 public:
  explicit FixedWindow(int64_t window) : window_(window) {}
  WindowTraits traits() const override { return {.name = "fixed"}; }
  int64_t maximum() const override { return window_; }
  void begin(std::span<const Row>) override {}
  int64_t length(int64_t) const override { return window_; }
  at::Tensor go_on(const DraftStep&) override { return {}; }
  void observe(int64_t, int64_t, int64_t) override {}
  void select_rows(std::span<const int64_t>) override {}

 private:
  int64_t window_;
};

}  // namespace draftsmith::infer
