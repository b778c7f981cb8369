# The libraries that the remote cache is made of, as imported targets: for Kiln's own build, and for
# whoever links its static libraries, since kilnConfig.cmake includes this file then.
#
# Sets kiln_remote_libraries to the targets, and kiln_remote_missing to what is not there and the cure.

# kiln_find_remote_library(<library> <header> <Debian's package>)
function(kiln_find_remote_library name header package)
  string(TOUPPER KILN_${name} variable)
  find_path(${variable}_INCLUDE_DIR ${header} DOC "Folder of ${header}")
  find_library(${variable}_LIBRARY ${name} DOC "The library ${name}")
  mark_as_advanced(${variable}_INCLUDE_DIR ${variable}_LIBRARY)
  if(NOT ${variable}_INCLUDE_DIR OR NOT ${variable}_LIBRARY)
    set(kiln_remote_missing "${kiln_remote_missing} ${package}" PARENT_SCOPE)
    return()
  endif()
  if(NOT TARGET kiln::external_${name})
    add_library(kiln::external_${name} UNKNOWN IMPORTED)
    set_target_properties(kiln::external_${name} PROPERTIES
      IMPORTED_LOCATION ${${variable}_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES ${${variable}_INCLUDE_DIR})
  endif()
  set(kiln_remote_libraries ${kiln_remote_libraries} kiln::external_${name} PARENT_SCOPE)
endfunction()

set(kiln_remote_libraries)
set(kiln_remote_missing)
kiln_find_remote_library(curl curl/curl.h libcurl4-openssl-dev)
kiln_find_remote_library(hiredis hiredis/hiredis.h libhiredis-dev)
kiln_find_remote_library(zstd zstd.h libzstd-dev)
if(kiln_remote_missing)
  set(kiln_remote_missing "libraries of the remote cache are missing: install them (on Debian: apt-get install${kiln_remote_missing})")
else()
  # The first that can be told the protocols in words.
  set(kiln_least_curl 7.85.0)
  file(STRINGS ${KILN_CURL_INCLUDE_DIR}/curl/curlver.h kiln_curl_version
       REGEX "^#define LIBCURL_VERSION +\"")
  string(REGEX REPLACE ".*\"([0-9.]+).*" "\\1" kiln_curl_version "${kiln_curl_version}")
  if(kiln_curl_version VERSION_LESS kiln_least_curl)
    set(kiln_remote_missing "the remote cache needs libcurl ${kiln_least_curl} or later, and ${KILN_CURL_INCLUDE_DIR} has ${kiln_curl_version}: install a later one and name it (KILN_CURL_INCLUDE_DIR, KILN_CURL_LIBRARY)")
  endif()
endif()
