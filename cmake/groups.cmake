# Sources are compiled several at a time (CMake calls that a unity build). From nothing that takes a third of the time;
# after a change of one file it takes somewhat longer, so who builds all day may turn it off. The preset debug compiles each source
# alone, which also shows an #include that is missing.
option(DRAFTSMITH_GROUPS "Compile sources in groups" ON)

function(draftsmith_compile_in_groups target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${DRAFTSMITH_GROUPS} UNITY_BUILD_BATCH_SIZE 10)
endfunction()

# draftsmith_compile_alone(FILE...): for sources that need flags of their own or change at every build. Local names that
# stand in two files of a folder need no such thing: give them names that say which one they are.
function(draftsmith_compile_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
