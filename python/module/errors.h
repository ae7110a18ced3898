// Exceptions of Draftsmith and LibTorch as Python's: draftsmith.UserError, RunError, Interrupted, BusyError
// (errors.py).
#pragma once

#include <pybind11/pybind11.h>

#include "base/error.h"

namespace draftsmith::python {

// Thrown where a Python exception is already set in this thread.
struct PythonError {};

// Error of a call on a model that an open stream uses.
class Busy : public Error {
 public:
  explicit Busy(Problem problem) : Error({std::move(problem)}) {}
  int exit_code() const override { return 2; }
};

// Registers the translation for functions of this module.
void translate_errors();

// Issues Python's draftsmith.DraftsmithWarning. Throws PythonError if the user's filters make it an error.
void warn(const std::string& message);

}  // namespace draftsmith::python
