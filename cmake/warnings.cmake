# Strict warnings for the project's own code; errors only where a developer's preset says so. Dependencies are system
# includes and stay out of it.

option(DRAFTSMITH_WERROR "Treat warnings as errors" OFF)
add_library(draftsmith_warnings INTERFACE)
target_compile_options(draftsmith_warnings INTERFACE -Wall -Wextra -Wshadow -Wconversion)
if(DRAFTSMITH_WERROR)
  target_compile_options(draftsmith_warnings INTERFACE -Werror)
endif()
