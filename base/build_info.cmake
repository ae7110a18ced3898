# Run at build time (cmake -P): writes build_info.cpp, touching it only when something changed.
#   -DSOURCE=repository -DOUTPUT=file -DVERSION=... -DCOMPILER=...
cmake_policy(VERSION 3.25)
set(commit unknown)
if(NOT "$ENV{DRAFTSMITH_COMMIT}" STREQUAL "")  # sources without a repository, as in the Dockerfile
  set(commit "$ENV{DRAFTSMITH_COMMIT}")
endif()
execute_process(COMMAND git -C "${SOURCE}" rev-parse --short=10 HEAD
  OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(NOT failed)
  set(commit "${head}")
  execute_process(COMMAND git -C "${SOURCE}" status --porcelain --untracked-files=no
    OUTPUT_VARIABLE changes ERROR_QUIET)
  if(changes)
    string(APPEND commit "+")
  endif()
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT "namespace draftsmith::build_info {
extern const char* const kVersion;
extern const char* const kCommit;
extern const char* const kCompiler;
const char* const kVersion = \"@VERSION@\";
const char* const kCommit = \"@commit@\";
const char* const kCompiler = \"@COMPILER@\";
}  // namespace draftsmith::build_info
" @ONLY)
