// Style sheet and scripts of pages, embedded in the program by CMake (cmake/page.cmake): evaluate/report/page/, and
// the library D3 from Debian's packages (BSD-3-Clause; its licence goes with it into every page).
#pragma once

#include <span>

#include "base/util.h"

namespace draftsmith::evaluate {

// Returns all files, those of D3 first and in the order in which they must run.
std::span<const EmbeddedText> page_texts();

}  // namespace draftsmith::evaluate
