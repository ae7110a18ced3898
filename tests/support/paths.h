// Where tests find the repository and the program. Only paths.cpp is compiled with these paths, so that ccache serves
// every other file in a clone at another place.
#pragma once

#include <filesystem>
#include <string>

namespace draftsmith::test {

// Returns the root of the repository.
std::filesystem::path source_dir();

// Returns the program draftsmith of this build.
std::string draftsmith_binary();

// Returns the folder of real data: $DRAFTSMITH_DATA, else shared/data beside the repository. It may not exist.
std::filesystem::path data_dir();

// Returns the Python interpreter with the packages that results are compared with ($DRAFTSMITH_PEERS_PYTHON, else
// .venv-peers). It may not exist.
std::filesystem::path peers_python();

}  // namespace draftsmith::test
