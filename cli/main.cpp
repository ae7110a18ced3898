// The program `draftsmith`. application.cpp has all that tests can call.
#include <algorithm>
#include <csignal>

#include "base/environment.h"
#include "cli/application.h"

int main(int argc, char** argv) {
  draftsmith::keep_freed_memory();
  std::signal(SIGCHLD, SIG_DFL);  // a parent may have ignored it, and then no child's end is seen
  return draftsmith::cli::guarded([&] { return draftsmith::cli::run({argv + std::min(argc, 1), argv + argc}); });
}
