# The libraries that the remote tier is made of, as imported targets: for Kiln's own build, and for
# whoever links its static libraries, since kilnConfig.cmake includes this file then.
#
# Sets kiln_remote_libraries to the targets, or kiln_remote_missing to what is not there and the cure.
set(kiln_remote_libraries)
set(kiln_remote_missing)
foreach(library IN ITEMS "curl|curl/curl.h|libcurl4-openssl-dev" "hiredis|hiredis/hiredis.h|libhiredis-dev"
                         "zstd|zstd.h|libzstd-dev")
  string(REPLACE "|" ";" library "${library}")
  list(GET library 0 name)
  list(GET library 1 header)
  list(GET library 2 package)
  string(TOUPPER KILN_${name} variable)
  find_path(${variable}_INCLUDE_DIR ${header} DOC "Folder of ${header}")
  find_library(${variable}_LIBRARY ${name} DOC "The library ${name}")
  mark_as_advanced(${variable}_INCLUDE_DIR ${variable}_LIBRARY)
  if(NOT ${variable}_INCLUDE_DIR OR NOT ${variable}_LIBRARY)
    list(APPEND kiln_remote_missing ${package})
    continue()
  endif()
  if(NOT TARGET kiln::external_${name})
    add_library(kiln::external_${name} UNKNOWN IMPORTED)
    set_target_properties(kiln::external_${name} PROPERTIES
      IMPORTED_LOCATION ${${variable}_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES ${${variable}_INCLUDE_DIR})
  endif()
  list(APPEND kiln_remote_libraries kiln::external_${name})
endforeach()
if(kiln_remote_missing)
  list(JOIN kiln_remote_missing " " kiln_remote_missing)
  set(kiln_remote_missing "libraries of the remote cache are missing: install them (on Debian: apt-get install ${kiln_remote_missing})")
endif()
