# Registers every suite of a GoogleTest program as one ctest entry.
#
# Why not gtest_discover_tests: it starts a process for each test, and loading LibTorch's CUDA libraries costs every
# process half a second or more, which for hundreds of tests is longer than the tests take.

# The list of suites is asked of the program after each link and written to a file that ctest includes.
function(draftsmith_register_suites target label timeout)
  if(NOT label)
    set(label unit)
  endif()
  if(NOT timeout)
    set(timeout 600)
  endif()
  set(list_file "${CMAKE_CURRENT_BINARY_DIR}/${target}_suites.cmake")
  add_custom_command(TARGET ${target} POST_BUILD
    COMMAND "${CMAKE_COMMAND}"
      "-DPROGRAM=$<TARGET_FILE:${target}>" "-DNAME=${target}" "-DLABEL=${label}"
      "-DTIMEOUT=${timeout}" "-DWORKING_DIRECTORY=${CMAKE_SOURCE_DIR}" "-DLIST_FILE=${list_file}"
      -P "${CMAKE_SOURCE_DIR}/cmake/write_suites.cmake"
    BYPRODUCTS "${list_file}" VERBATIM)
  set_target_properties(${target} PROPERTIES LINK_DEPENDS "${CMAKE_SOURCE_DIR}/cmake/write_suites.cmake")
  set(include_file "${CMAKE_CURRENT_BINARY_DIR}/${target}_include.cmake")
  file(WRITE "${include_file}"
    "if(EXISTS \"${list_file}\")\n"
    "  include(\"${list_file}\")\n"
    "else()\n"
    "  add_test(${target}_NOT_BUILT ${target}_NOT_BUILT)\n"
    "endif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${include_file}")
endfunction()
