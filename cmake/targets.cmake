# One library a folder, one test program a folder, one precompiled header with LibTorch and one without.

option(BUILD_SHARED_LIBS "Build shared libraries in place of static ones" OFF)
# Shared libraries and the Python module need code that runs at any address. All targets compile as such, executables too,
# since they share precompiled headers; the linker makes it direct in programs. Calls within a library need no table.
# Decoding is not slower for it: .98 to 1.01 of its speed without, for four methods on the quickstart's models.
add_compile_options(-fPIC -fno-semantic-interposition)
# Behind a precompiled header GCC's garbage collector starts often, for an eighth of the compiler's time. With this it
# starts seldom, and a group takes a fifth more memory.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(--param=ggc-min-expand=400)
endif()

option(DRAFTSMITH_AVX2 "No vector code for AVX-512 but the kernels that DRAFTSMITH_CPU chooses among" OFF)
if(DRAFTSMITH_AVX2)
  add_compile_definitions(DRAFTSMITH_AVX2)
endif()

# draftsmith_library(NAME [TORCH] DEPENDS lib... [ALONE file...] [VECTOR_CODE file...] [EXCEPT file...]): all .cpp files of
# the folder, as the library draftsmith_NAME. What is no vector code is compiled with -O1: programs decode and train as
# fast as with -O3, and compile in .87 of its time.
# ALONE: sources that take no precompiled header, and no group therefore.
# VECTOR_CODE: sources whose loops must become vector code. GCC vectorises a comparison inside a loop only when it may
# assume that no floating-point exception is observed; nothing here observes one. Results are the same.
# EXCEPT: sources that are not the library's.
function(draftsmith_library name)
  cmake_parse_arguments(ARG "TORCH" "" "DEPENDS;ALONE;VECTOR_CODE;EXCEPT" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  list(TRANSFORM ARG_ALONE PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  list(TRANSFORM ARG_VECTOR_CODE PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  list(TRANSFORM ARG_EXCEPT PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  list(REMOVE_ITEM sources ${ARG_ALONE} ${ARG_VECTOR_CODE} ${ARG_EXCEPT})
  draftsmith_group_sources(${name} sources ${sources})
  add_library(draftsmith_${name} ${sources} ${ARG_ALONE} ${ARG_VECTOR_CODE})
  set_source_files_properties(${ARG_ALONE} ${ARG_VECTOR_CODE} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  set_source_files_properties(${ARG_VECTOR_CODE} PROPERTIES
    COMPILE_OPTIONS "$<$<CONFIG:Release>:-O3>;-fno-trapping-math;-fno-math-errno")
  add_library(draftsmith::${name} ALIAS draftsmith_${name})
  set_target_properties(draftsmith_${name} PROPERTIES EXPORT_NAME ${name}
    DEFINE_SYMBOL "" VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_compile_features(draftsmith_${name} INTERFACE cxx_std_20)
  target_include_directories(draftsmith_${name} PUBLIC "$<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>")
  target_link_libraries(draftsmith_${name} PUBLIC ${ARG_DEPENDS} PRIVATE $<BUILD_INTERFACE:draftsmith_warnings>)
  # GCC 12 takes members of optional values for uninitialised where it does not inline.
  target_compile_options(draftsmith_${name} PRIVATE $<$<CONFIG:Release>:-O1 -Wno-maybe-uninitialized>)
  if(ARG_TORCH)
    draftsmith_use_torch(draftsmith_${name} PUBLIC)
  else()
    draftsmith_use_no_torch(draftsmith_${name})
  endif()
endfunction()

# A precompiled header is built once and shared by every target of its layers (cmake/precompiled.cmake). That works only
# while all of them compile with the same flags: set none (nor POSITION_INDEPENDENT_CODE) on single targets.
function(draftsmith_use_torch target scope)
  target_link_libraries(${target} ${scope} draftsmith::torch)
  target_precompile_headers(${target} REUSE_FROM draftsmith_precompiled_torch)
endfunction()
function(draftsmith_use_no_torch target)
  target_precompile_headers(${target} REUSE_FROM draftsmith_precompiled_plain)
endfunction()

# Programs that decode take and free hundreds of small blocks a token: with TCMalloc a token takes up to a tenth less than
# with the C library's allocator, and times depend less on what ran before. Without it they build and run as well.
find_library(DRAFTSMITH_TCMALLOC NAMES libtcmalloc_minimal.so.4)
function(draftsmith_use_tcmalloc target)
  if(DRAFTSMITH_TCMALLOC AND NOT DRAFTSMITH_SANITIZE)
    target_link_libraries(${target} PRIVATE -Wl,--no-as-needed "${DRAFTSMITH_TCMALLOC}" -Wl,--as-needed)
  endif()
endfunction()

# draftsmith_test(NAME [TORCH] [PROGRAM] DEPENDS lib... [LABEL unit|parity|end_to_end] [TIMEOUT seconds]):
# all .cpp files of tests/NAME, as the program test_NAME; each of its suites is one ctest entry (see test_suites.cmake).
# PROGRAM: the tests run the program draftsmith.
function(draftsmith_test name)
  cmake_parse_arguments(ARG "TORCH;PROGRAM" "LABEL;TIMEOUT" "DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp")
  if(NOT sources)
    return()
  endif()
  draftsmith_group_sources(test_${name} sources ${sources})
  add_executable(test_${name} ${sources})
  target_link_libraries(test_${name} PRIVATE
    ${ARG_DEPENDS} draftsmith_test_paths GTest::gtest GTest::gmock GTest::gtest_main draftsmith_test_warnings)
  target_link_libraries(test_${name} PRIVATE draftsmith_test_flags)
  if(ARG_TORCH)
    target_link_libraries(test_${name} PRIVATE draftsmith::torch)
    target_precompile_headers(test_${name} REUSE_FROM draftsmith_precompiled_test_torch)
  else()
    target_precompile_headers(test_${name} REUSE_FROM draftsmith_precompiled_test_plain)
  endif()
  if(ARG_PROGRAM)
    add_dependencies(test_${name} draftsmith)
  endif()
  draftsmith_register_suites(test_${name} "${ARG_LABEL}" "${ARG_TIMEOUT}")
endfunction()
