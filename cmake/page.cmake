# Embeds what pages of results are made of.

# The function page_texts() of evaluate/report/report.h: D3, of which Debian packages the parts, and our own files.
function(draftsmith_embed_page library)
  set(files "")
  foreach(part array collection color interpolate format time time-format scale selection axis path shape)
    find_file(DRAFTSMITH_D3_${part} "d3-${part}.min.js" NO_CACHE
      PATHS "/usr/share/nodejs/d3-${part}/dist" "/usr/share/javascript/d3-${part}" NO_DEFAULT_PATH)
    if(NOT DRAFTSMITH_D3_${part})
      message(FATAL_ERROR "d3-${part}.min.js is missing, which reports need: Debian's package node-d3-${part}. "
        "tools/setup installs it.")
    endif()
    list(APPEND files "${DRAFTSMITH_D3_${part}}")
  endforeach()
  file(GLOB own CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/report/page/*")
  list(SORT own)
  list(APPEND files ${own})
  set(names "")
  foreach(file IN LISTS files)
    cmake_path(GET file FILENAME name)
    list(APPEND names "${name}")
  endforeach()
  draftsmith_embed_texts(${library} FUNCTION page_texts HEADER evaluate/report/report.h
    NAMESPACE draftsmith::evaluate FILES ${files} NAMES ${names})
endfunction()
