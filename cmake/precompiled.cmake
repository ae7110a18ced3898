# Precompiled headers: of the layers with LibTorch and of those without, and the same two for tests (targets.cmake shares
# them). Each is compiled with the flags of the targets that use it.

# draftsmith_precompiled(NAME HEADER): the target draftsmith_precompiled_NAME, which compiles cmake/HEADER.
function(draftsmith_precompiled name header)
  set(target draftsmith_precompiled_${name})
  add_library(${target} STATIC "${CMAKE_SOURCE_DIR}/cmake/precompiled.cpp")
  target_include_directories(${target} PRIVATE "${CMAKE_SOURCE_DIR}")
  target_link_libraries(${target} PRIVATE draftsmith::fmt draftsmith::torch nlohmann_json::nlohmann_json ${ARGN})
  target_precompile_headers(${target} PRIVATE "${CMAKE_SOURCE_DIR}/cmake/${header}")
  draftsmith_cache_precompiled(${target})
endfunction()

draftsmith_precompiled(plain precompiled_plain.h)
draftsmith_precompiled(torch precompiled_torch.h)

# Tests are not timed: with -O1 they compile in half of the time.
add_library(draftsmith_test_flags INTERFACE)
target_compile_options(draftsmith_test_flags INTERFACE $<$<CONFIG:Release>:-O1>)
if(BUILD_TESTING)
  draftsmith_precompiled(test_plain precompiled_test_plain.h draftsmith_test_flags GTest::gmock)
  draftsmith_precompiled(test_torch precompiled_test_torch.h draftsmith_test_flags GTest::gmock)
endif()
