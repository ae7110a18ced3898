#include "cli/guard.h"

#include <exception>
#include <iostream>
#include <new>
#include <stdexcept>
#include <string>

#include <c10/util/Exception.h>

#include "base/error.h"
#include "base/signals.h"

namespace draftsmith::cli {

namespace {

constexpr int kFailed = 1;

int report(const std::string& message, int exit_code) {
  std::cout.flush();
  std::cerr << message << std::endl;
  return exit_code;
}

std::string with_heading(const Error& error) {
  const size_t count = error.problems().size();
  if (count > 1) return std::to_string(count) + " errors:\n" + error.what();
  return std::string("error: ") + error.what();
}

// Returns what was asked and what was free, without LibTorch's advice on its own settings.
std::string memory_facts(const c10::OutOfMemoryError& error) {
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find(" Of the allocated memory"));
}

// Reports a failed run if standard output could not take all results.
int flushed(int exit_code) {
  std::cout.flush();
  if (std::cout.good()) return exit_code;
  return report("error: standard output could not be written\n  hint:     is its disk full?", kFailed);
}

}  // namespace

int guarded(const std::function<int()>& work) {
  try {
    return flushed(work());
  } catch (const Interrupted& stop) {
    return report(stop.what(), stop.exit_code());
  } catch (const Error& error) {
    return report(with_heading(error), error.exit_code());
  } catch (const c10::OutOfMemoryError& error) {
    return report("error: the GPU's memory is full\n  found:    " + memory_facts(error) +
                      "\n  hint:     decode with a smaller --batch-size, train with a smaller batches.token_budget "
                      "or in bf16, or stop other programs on the GPU",
                  kFailed);
  } catch (const c10::Error& error) {
    return report("error: LibTorch: " + std::string(error.what_without_backtrace()), kFailed);
  } catch (const std::bad_alloc&) {
    return report("error: out of memory\n  hint:     use smaller batches or a smaller model", kFailed);
  } catch (const std::logic_error& error) {
    return report("internal error: " + std::string(error.what()) +
                      "\n  hint:     this is a bug in draftsmith; please report it with the command and its input",
                  kFailed);
  } catch (const std::exception& error) {
    return report("error: " + std::string(error.what()), kFailed);
  }
}

}  // namespace draftsmith::cli
