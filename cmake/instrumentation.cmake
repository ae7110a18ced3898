# Sanitizers and coverage, for the presets asan and coverage. They apply to all of our own code, not to LibTorch.
# Presets for debugging define NDEBUG: without it LibTorch's headers have other layouts (RecordFunction) than its library.

option(DRAFTSMITH_SANITIZE "Address and undefined-behaviour sanitizers" OFF)
option(DRAFTSMITH_COVERAGE "Count the lines that tests run (gcov)" OFF)

if(DRAFTSMITH_SANITIZE)
  # vptr checks need the type information of LibTorch's hidden classes, which the wheel does not export.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined
                      -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=address,undefined)
  # GCC 12 reports uninitialised variables in instrumented standard-library code that it does not report otherwise.
  target_compile_options(draftsmith_warnings INTERFACE -Wno-error=maybe-uninitialized)
endif()

if(DRAFTSMITH_COVERAGE)
  add_compile_options(--coverage -fprofile-update=atomic -g)
  add_link_options(--coverage)
endif()
