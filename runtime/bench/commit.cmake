#   kiln_find_commit(<variable>)
#
# sets the variable to the last commit, a change of which configures anew; "unknown" outside a
# repository.
function(kiln_find_commit variable)
  set(${variable} unknown PARENT_SCOPE)
  find_package(Git QUIET)
  if(NOT Git_FOUND)
    return()
  endif()
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${PROJECT_SOURCE_DIR} describe --always --dirty
                          --abbrev=12 --match=v*
                  OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(described)
    set(${variable} ${described} PARENT_SCOPE)
    execute_process(COMMAND ${GIT_EXECUTABLE} -C ${PROJECT_SOURCE_DIR} rev-parse
                            --path-format=absolute --git-path logs/HEAD
                    OUTPUT_VARIABLE head_log OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${head_log})
  endif()
endfunction()
