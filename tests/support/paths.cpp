#include "tests/support/paths.h"

#include <cstdlib>

namespace draftsmith::test {
namespace {

std::filesystem::path from_environment(const char* name, const std::filesystem::path& otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::filesystem::path(value) : otherwise;
}

}  // namespace

std::filesystem::path source_dir() {
  return DRAFTSMITH_SOURCE_DIR;
}

std::string draftsmith_binary() {
  return DRAFTSMITH_BINARY;
}

std::filesystem::path data_dir() {
  return from_environment("DRAFTSMITH_DATA", source_dir() / "../shared/data");
}

std::filesystem::path peers_python() {
  return from_environment("DRAFTSMITH_PEERS_PYTHON", source_dir() / ".venv-peers/bin/python");
}

}  // namespace draftsmith::test
