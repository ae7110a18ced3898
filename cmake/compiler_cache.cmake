# ccache when it is there. Paths below the repository are hashed relative to it, so that another clone gets hits too. By
# default ccache refuses to cache what uses a precompiled header, because it cannot see whether the header's macros and
# times matter; they don't here, and these settings say so.

option(DRAFTSMITH_CCACHE "Compile through ccache when it is installed" ON)
find_program(CCACHE ccache)
if(DRAFTSMITH_CCACHE AND CCACHE)
  set(ccache_sloppiness pch_defines,time_macros,include_file_mtime,include_file_ctime)
  foreach(language C CXX)
    set(CMAKE_${language}_COMPILER_LAUNCHER
      "${CMAKE_COMMAND}" -E env "CCACHE_SLOPPINESS=${ccache_sloppiness}" "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}"
      CCACHE_NOHASHDIR=1 "${CCACHE}")
  endforeach()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>")
  endif()
endif()
