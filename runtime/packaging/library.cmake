# What Kiln's libraries have in common. BUILD_SHARED_LIBS says which kind they are.

#   kiln_add_library(<name> <sources>...)
#
# makes the target kiln_<name>, which users call kiln::<name>, and its install rules.
function(kiln_add_library name)
  set(target kiln_${name})
  add_library(${target} ${ARGN})
  add_library(kiln::${name} ALIAS ${target})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:kiln_build_flags>)
  set_target_properties(${target} PROPERTIES
    EXPORT_NAME ${name}
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    DEFINE_SYMBOL KILN_EXPORTS
    # In a unity build files of one batch must not have the same private names: the batches are
    # these, whatever a project around this one says.
    UNITY_BUILD_BATCH_SIZE 8
    VERSION ${PROJECT_VERSION}
    # Before 1.0 a minor version may change anything.
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    INSTALL_RPATH $ORIGIN
    # Headers cost most: this many files at a time, where the build asks for any.
    UNITY_BUILD_BATCH_SIZE 16)
  if(KILN_INSTALL)
    install(TARGETS ${target} EXPORT kiln
            ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
            LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endfunction()

#   kiln_public_headers(<name>)
#
# makes the current folder's include/ part of kiln::<name>, built or installed.
function(kiln_public_headers name)
  target_include_directories(kiln_${name} PUBLIC
    $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  if(KILN_INSTALL)
    install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.hpp)
  endif()
endfunction()

#   kiln_find_headers(<name> <header> [HINTS <folders>...])
#
# makes the interface target kiln_<name>_headers for what somebody else wrote and we only compile
# in. The header itself is looked for, and no package of it, because those are kept by machine type:
# a build for another one would not find them.
function(kiln_find_headers name header)
  string(TOUPPER KILN_${name}_INCLUDE_DIR variable)
  find_path(${variable} ${header} ${ARGN} PATH_SUFFIXES include DOC "Folder of ${header}" REQUIRED)
  add_library(kiln_${name}_headers INTERFACE)
  target_include_directories(kiln_${name}_headers SYSTEM INTERFACE ${${variable}})
endfunction()
