# Embeds texts of files in the program.

# draftsmith_embed_texts(LIBRARY FUNCTION f HEADER h NAMESPACE n FILES file... NAMES name...): adds the function
# of that header, which returns the texts of the files under these names, to the library (see write_texts.cmake).
function(draftsmith_embed_texts library)
  cmake_parse_arguments(ARG "" "FUNCTION;HEADER;NAMESPACE" "FILES;NAMES" ${ARGN})
  set(output "${CMAKE_CURRENT_BINARY_DIR}/${ARG_FUNCTION}.cpp")
  set(script "${CMAKE_SOURCE_DIR}/cmake/write_texts.cmake")
  add_custom_command(
    OUTPUT "${output}"
    COMMAND "${CMAKE_COMMAND}" "-DFILES=${ARG_FILES}" "-DNAMES=${ARG_NAMES}" "-DHEADER=${ARG_HEADER}"
      "-DFUNCTION=${ARG_FUNCTION}" "-DNAMESPACE=${ARG_NAMESPACE}" "-DOUTPUT=${output}"
      -P "${script}"
    DEPENDS ${ARG_FILES} "${script}"
    COMMENT "Embedding texts: ${ARG_FUNCTION}" VERBATIM)
  target_sources(${library} PRIVATE "${output}")
endfunction()
