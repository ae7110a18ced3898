# Strict warnings for the project's own code; errors only where a developer's preset says so. Dependencies are system
# includes and stay out of it.

option(DRAFTSMITH_WERROR "Treat warnings as errors" OFF)
add_library(draftsmith_warnings INTERFACE)
target_compile_options(draftsmith_warnings INTERFACE -Wall -Wextra -Wshadow -Wconversion)
if(DRAFTSMITH_WERROR)
  target_compile_options(draftsmith_warnings INTERFACE -Werror)
endif()

# GCC 12 reports overlaps and overflows inside std::string that are none, in long functions as tests are, and in groups.
# Tests and benches name the members that matter to them; the others have their defaults.
add_library(draftsmith_test_warnings INTERFACE)
target_link_libraries(draftsmith_test_warnings INTERFACE draftsmith_warnings)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(false_reports -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow)
  target_compile_options(draftsmith_test_warnings INTERFACE ${false_reports} -Wno-missing-field-initializers)
  # In a group every source but its first file counts as a header, whose members may not have local types.
  if(DRAFTSMITH_GROUPS)
    target_compile_options(draftsmith_warnings INTERFACE ${false_reports} -Wno-subobject-linkage)
  endif()
endif()
