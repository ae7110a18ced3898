// Python scripts, which the program holds as texts. A script runs in a process of its own, reads lines of JSON, and
// answers each by one: an object with the result under "text", with "error" (what, expected, found, hint, line), or
// with "missing", the module that it lacks.
#pragma once

#include <limits>
#include <memory>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "base/child_process.h"
#include "base/util.h"

namespace draftsmith {

// "python": the path of the build's interpreter.
std::span<const EmbeddedText> python_texts();

// What messages say of a script.
struct ScriptMessages {
  std::string where;   // the file that it works on
  std::string what;    // "the chat template cannot be rendered"
  std::string module;  // "jinja2"
};

class PythonScript {
 public:
  // Starts $DRAFTSMITH_PYTHON, the interpreter of the build's .venv, or python3 in PATH, with the parts of a script.
  // The process ends with this object. Errors: UserError if it cannot be started.
  PythonScript(std::span<const EmbeddedText> parts, ScriptMessages messages);

  // Returns what stands under "text" in the answer. Errors, after which the script is of no use: UserError for the
  // script's own, and if it ends, lacks a module or takes longer than `seconds`; Interrupted.
  nlohmann::json ask(const nlohmann::ordered_json& request, double seconds = std::numeric_limits<double>::infinity());

 private:
  [[noreturn]] void fail_python(const std::string& found) const;

  ScriptMessages messages_;
  std::unique_ptr<ChildProcess> python_;
};

}  // namespace draftsmith
