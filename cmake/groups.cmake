# Sources are compiled up to forty at a time, those of tests up to twenty: a group is a file of lines
# `#include "base/table.cpp"` and so on. From nothing that takes a fifth of the time; after a change of one file it
# takes up to half a minute, so who builds all day may turn it off. The preset debug compiles each source alone, which
# also shows an #include that is missing.
#
# CMake's own unity builds name sources by absolute path, so that ccache would find nothing for a second clone. These
# files name sources below the repository, which is in the include path of every target.
#
# Sources of a group share one translation unit: a local name that stands in two of them must say which it is.
option(DRAFTSMITH_GROUPS "Compile sources in groups" ON)

# draftsmith_group_sources(TARGET OUT FILE...): sets OUT to what the target compiles in place of the files (absolute
# paths below the repository): its groups, or the files themselves.
function(draftsmith_group_sources target out)
  if(NOT DRAFTSMITH_GROUPS)
    set(${out} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  set(groups "")
  set(files ${ARGN})
  list(LENGTH files left)
  set(most 40)
  if(target MATCHES "^test_")
    set(most 20)
  endif()
  math(EXPR groups_left "(${left} + ${most} - 1) / ${most}")  # of as equal sizes as can be
  while(files)
    math(EXPR size "(${left} + ${groups_left} - 1) / ${groups_left}")
    list(SUBLIST files 0 ${size} group)
    list(REMOVE_ITEM files ${group})
    math(EXPR left "${left} - ${size}")
    math(EXPR groups_left "${groups_left} - 1")
    set(content "")
    foreach(file IN LISTS group)
      cmake_path(RELATIVE_PATH file BASE_DIRECTORY "${CMAKE_SOURCE_DIR}")
      string(APPEND content "#include \"${file}\"\n")
    endforeach()
    list(LENGTH groups number)
    set(path "${CMAKE_BINARY_DIR}/groups/${target}_${number}.cpp")
    file(CONFIGURE OUTPUT "${path}" CONTENT "${content}" @ONLY)  # leaves a file that is the same as it is
    list(APPEND groups "${path}")
  endwhile()
  set(${out} ${groups} PARENT_SCOPE)
endfunction()
