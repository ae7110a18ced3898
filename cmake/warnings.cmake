# Strict warnings for the project's own code; errors only where a developer's preset says so. Dependencies are system
# includes and stay out of it.

option(DRAFTSMITH_WERROR "Treat warnings as errors" OFF)
add_library(draftsmith_warnings INTERFACE)
target_compile_options(draftsmith_warnings INTERFACE -Wall -Wextra -Wshadow -Wconversion)
if(DRAFTSMITH_WERROR)
  target_compile_options(draftsmith_warnings INTERFACE -Werror)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports overlaps and overflows inside std::string that are none, in long functions and in groups of sources.
  target_compile_options(draftsmith_warnings INTERFACE -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow)
  # In a group every source but its first file counts as a header, whose members may not have local types.
  if(DRAFTSMITH_GROUPS)
    target_compile_options(draftsmith_warnings INTERFACE -Wno-subobject-linkage)
  endif()
endif()
