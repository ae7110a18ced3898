// The window `fixed`: always G tokens (Leviathan et al., Algorithm 1; BiLD without fallback).
#pragma once

#include "infer/windows/window_rule.h"

namespace draftsmith::infer {

class FixedWindow : public BoundedWindow {
 public:
  using BoundedWindow::BoundedWindow;
  static WindowTraits kind() { return {.name = "fixed", .constant_length = true}; }
  WindowTraits traits() const override { return kind(); }
};

}  // namespace draftsmith::infer
