# ccache when it is there. Paths below the repository are hashed relative to it, so that another clone gets hits too. By
# default ccache refuses to cache what uses a precompiled header, because it cannot see whether the header's macros and
# times matter; they don't here, and these settings say so. Headers that are newer than a compilation are not cached: who
# edits while a build runs would store what was never compiled.

option(DRAFTSMITH_CCACHE "Compile through ccache when it is installed" ON)
find_program(CCACHE ccache)
if(DRAFTSMITH_CCACHE AND CCACHE)
  set(ccache_environment
    CCACHE_SLOPPINESS=pch_defines,time_macros
    "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}" CCACHE_NOHASHDIR=1)
  foreach(language C CXX)
    set(CMAKE_${language}_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env ${ccache_environment} "${CCACHE}")
  endforeach()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>")
  endif()
endif()

# draftsmith_cache_precompiled(TARGET): a precompiled header holds checksums of its files, comments included. So a change
# of a comment alone must be compiled anew: otherwise GCC takes `#pragma once` for that of another file.
function(draftsmith_cache_precompiled target)
  if(DRAFTSMITH_CCACHE AND CCACHE)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND};-E;env;${ccache_environment};CCACHE_COMMENTS=1;${CCACHE}")
  endif()
endfunction()
