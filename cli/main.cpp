// The program `draftsmith`. application.cpp has all that tests can call.
#include <algorithm>

#include "base/environment.h"
#include "cli/application.h"

int main(int argc, char** argv) {
  draftsmith::keep_freed_memory();
  return draftsmith::cli::guarded([&] { return draftsmith::cli::run({argv + std::min(argc, 1), argv + argc}); });
}
