// Python scripts, which the program holds as texts. Each runs in a process of its own, reads JSON lines, and answers
// each by one: an object with the result under "text", with "error", or with "missing", the module that it lacks.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/child_process.h"

namespace draftsmith {

// Text that CMake embeds.
struct EmbeddedText {
  std::string_view name;
  std::string_view text;
};
// "python": the path of the build's interpreter.
std::span<const EmbeddedText> python_texts();

// What messages say of a script.
struct ScriptMessages {
  std::string where;    // the file that it works on
  std::string what;     // "the chat template cannot be rendered"
  std::string module;   // "Jinja2"
  std::string install;  // "install pip's jinja2"
};

class PythonScript {
 public:
  // Starts $DRAFTSMITH_PYTHON, the interpreter of the build's .venv, or python3 in PATH. The process ends with this
  // object. Errors: UserError if it cannot be started.
  PythonScript(std::string_view script, ScriptMessages messages);

  // Returns the answer, which has "text" or "error". Errors, after which the script is of no use: UserError if it ends,
  // lacks a module or takes longer than `seconds`; Interrupted.
  nlohmann::json ask(const nlohmann::ordered_json& request, double seconds);

 private:
  std::string answer(std::string_view request, double seconds);
  [[noreturn]] void fail_python(const std::string& found) const;

  ScriptMessages messages_;
  std::string interpreter_;
  std::unique_ptr<ChildProcess> python_;
};

}  // namespace draftsmith
