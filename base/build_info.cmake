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
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT "#include \"base/environment.h\"

std::string draftsmith::version() { return \"@VERSION@\"; }
std::string draftsmith::git_commit() { return \"@commit@\"; }
std::string draftsmith::compiler() { return \"@COMPILER@\"; }
" @ONLY)
