# Strict warnings, as errors, for the project's own code. Dependencies are system includes and stay out of it.

add_library(draftsmith_warnings INTERFACE)
target_compile_options(draftsmith_warnings INTERFACE -Wall -Wextra -Wshadow -Wconversion -Werror)
