# Run by `cmake --install`: copies headers and all that they include by a path of the repository, and no others.
#   source: the repository; destination, below the prefix; entrances: paths of headers

cmake_policy(VERSION 3.25)
set(waiting ${entrances})
set(headers "")
while(waiting)
  list(POP_FRONT waiting header)
  if(header IN_LIST headers)
    continue()
  endif()
  list(APPEND headers "${header}")
  file(STRINGS "${source}/${header}" lines REGEX "^#include \"")
  list(TRANSFORM lines REPLACE "^#include \"([^\"]+)\".*$" "\\1")
  list(APPEND waiting ${lines})
endwhile()

foreach(header IN LISTS headers)
  cmake_path(GET header PARENT_PATH folder)
  file(INSTALL "${source}/${header}" DESTINATION "${CMAKE_INSTALL_PREFIX}/${destination}/${folder}")
endforeach()
