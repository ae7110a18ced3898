// What the build knows about itself; build_info.cpp is generated at configure and build time (base/CMakeLists.txt).
#pragma once

namespace draftsmith::build_info {

extern const char* const kVersion;
extern const char* const kCommit;
extern const char* const kCompiler;

}  // namespace draftsmith::build_info
