# Run after a test program is linked (see test_suites.cmake): writes one add_test for each of its suites.
#   PROGRAM, NAME, LABEL, TIMEOUT, WORKING_DIRECTORY, LIST_FILE
# Suites named ...Gpu... also get the label gpu; those named ...Speed... or ...Serial... measure time or use every core,
# and run alone.

execute_process(COMMAND "${PROGRAM}" --gtest_list_tests
  OUTPUT_VARIABLE listing ERROR_VARIABLE errors RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${NAME} could not list its tests (${status}):\n${errors}")
endif()

# Suites are the lines that are not indented; they end in a dot, after which a comment may follow. Disabled tests do not
# run: a suite without others would be an entry that cannot fail.
string(REGEX REPLACE "  +# [^\n]*" "" listing "${listing}")
string(REGEX REPLACE "\n  DISABLED_[^\n]*" "" listing "${listing}")
string(REGEX MATCHALL "(^|\n)[A-Za-z_][^ \n]*\\.\n  " suites "${listing}")
list(FILTER suites EXCLUDE REGEX "(^|[/\n])DISABLED_")

# A suite whose tests all skip themselves counts as skipped. The pattern reaches to the end of the output, so that a
# suite with a failure, which prints more after the list of skipped tests, never matches.
set(skip "\\[  PASSED  \\] 0 tests\\.\n(\\[  SKIPPED \\] [^\n]*\n)+$")

set(script "")
foreach(suite IN LISTS suites)
  string(STRIP "${suite}" suite)
  string(REGEX REPLACE "\\.$" "" suite "${suite}")
  set(labels "${LABEL}")
  # Elsewhere a GPU is hidden, so that the same device is chosen on every machine.
  set(gpus "CUDA_VISIBLE_DEVICES=;")
  if(suite MATCHES "Gpu|Cuda")
    list(APPEND labels gpu)
    set(gpus "")
  endif()
  string(APPEND script
    "add_test([==[${NAME}.${suite}]==] [==[${PROGRAM}]==] [==[--gtest_filter=${suite}.*]==])\n"
    "set_tests_properties([==[${NAME}.${suite}]==] PROPERTIES\n"
    "  LABELS [==[${labels}]==] TIMEOUT ${TIMEOUT} WORKING_DIRECTORY [==[${WORKING_DIRECTORY}]==]\n"
    "  ENVIRONMENT [==[${gpus}OMP_NUM_THREADS=1;ASAN_OPTIONS=protect_shadow_gap=0:allocator_may_return_null=1;"
    "LSAN_OPTIONS=suppressions=${CMAKE_CURRENT_LIST_DIR}/leaks.supp:print_suppressions=0]==]\n"
    "  SKIP_REGULAR_EXPRESSION [==[${skip}]==]")
  if(suite MATCHES "Speed|Serial")
    string(APPEND script " RUN_SERIAL TRUE")
  endif()
  string(APPEND script ")\n")
endforeach()
file(WRITE "${LIST_FILE}" "${script}")
