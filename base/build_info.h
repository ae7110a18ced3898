// Version, commit and compiler of this build. CMake generates build_info.cpp (base/CMakeLists.txt).
#pragma once

namespace draftsmith::build_info {

extern const char* const kVersion;
extern const char* const kCommit;
extern const char* const kCompiler;

}  // namespace draftsmith::build_info
