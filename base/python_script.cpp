#include "base/python_script.h"

#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/wait.h>

#include "base/error.h"
#include "base/signals.h"
#include "base/timing.h"

namespace draftsmith {
namespace {

constexpr size_t kMostLineBytes = 64'000'000;  // of an answer

std::string interpreter() {
  const char* chosen = std::getenv("DRAFTSMITH_PYTHON");
  if (chosen != nullptr && *chosen != '\0') return chosen;
  std::error_code ignored;
  std::string built_with(python_texts().front().text);
  return std::filesystem::exists(built_with, ignored) ? built_with : "python3";
}

// Returns the line of a request. Errors: UserError for a text in it that is no UTF-8.
std::string request_line(const nlohmann::ordered_json& request, const ScriptMessages& messages) {
  try {
    return request.dump() + "\n";
  } catch (const nlohmann::json::type_error& error) {
    throw UserError({messages.where, messages.what + ": a text that it is to read is no UTF-8", "", error.what(), ""});
  }
}

}  // namespace

PythonScript::PythonScript(std::span<const EmbeddedText> parts, ScriptMessages messages)
    : messages_(std::move(messages)) {
  std::string script(python_texts().back().text);
  for (const EmbeddedText& part : parts) script += part.text;
  try {
    python_ = std::make_unique<ChildProcess>(std::vector{interpreter(), std::string("-c"), script});
  } catch (const RunError& error) {
    fail_python(error.problems()[0].where + ": " + error.problems()[0].found);
  }
}

nlohmann::json PythonScript::ask(const nlohmann::ordered_json& request, double seconds) {
  constexpr int kLook = 10;  // milliseconds between looks at signals and time
  const std::string text = request_line(request, messages_);
  std::string_view rest = text;
  nlohmann::json error;
  const Stopwatch watch;
  python_->output.clear();
  while (!python_->output.ends_with('\n') && error.is_null()) {
    throw_if_stop_requested("the Python script was ended");
    const bool ended = python_->has_ended();  // before the last reading, so that nothing is lost
    python_->exchange(rest, ended ? 0 : kLook);
    if (python_->output.ends_with('\n')) break;
    if (ended) {
      const int status = python_->finish();
      fail_python(WIFSIGNALED(status) ? fmt::format("it was ended by signal {}", WTERMSIG(status))
                                      : fmt::format("exit code {}: {}", WEXITSTATUS(status), python_->errors));
    }
    if (python_->output.size() > kMostLineBytes) error["what"] = "an answer has more than 64 MB";
    if (watch.seconds() > seconds) error["what"] = fmt::format("it takes longer than {:g} seconds", seconds);
  }
  nlohmann::json answered = nlohmann::json::parse(error.is_null() ? python_->output : "{}", nullptr, false);
  if (answered.is_object() && answered.contains("missing")) fail_python(answered["missing"].get<std::string>());
  if (answered.is_object() && answered.contains("text")) return answered["text"];
  if (answered.is_object() && answered.contains("error")) error = answered["error"];
  if (error.is_null()) fail_python("an answer that is none: " + python_->output.substr(0, 100));
  const int line = error.value("line", 0);
  throw UserError({.where = messages_.where + (line > 0 ? ":" + std::to_string(line) : ""),
                   .what = messages_.what + ": " + error.value("what", ""),
                   .expected = error.value("expected", ""),
                   .found = error.value("found", ""),
                   .hint = error.value("hint", "")});
}

void PythonScript::fail_python(const std::string& found) const {
  throw UserError({.where = messages_.where,
                   .what = messages_.what + ", since Python's " + messages_.module + " does not run",
                   .expected = messages_.module + " in " + interpreter(),
                   .found = found,
                   .hint = "pip install " + messages_.module +
                           ", or name an interpreter that has it in the environment variable DRAFTSMITH_PYTHON"});
}

}  // namespace draftsmith
