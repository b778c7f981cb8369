# The CMake package, the pkg-config files and the documents. Everything finds the rest of an
# installation from its own place, so that a prefix can be moved.
include(CMakePackageConfigHelpers)

# Shared libraries bring what they need by themselves.
set(kiln_needs_remote_libraries OFF)
set(remote_libs)
if(KILN_WITH_REMOTE AND NOT BUILD_SHARED_LIBS)
  set(kiln_needs_remote_libraries ON)
  set(remote_libs " -lcurl -lhiredis -lzstd")
endif()

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/kiln)
install(EXPORT kiln NAMESPACE kiln:: FILE kilnTargets.cmake DESTINATION ${package_folder})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/kilnConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/kilnConfig.cmake
                              INSTALL_DESTINATION ${package_folder}
                              NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kilnConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kilnConfig.cmake
              ${PROJECT_BINARY_DIR}/kilnConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/kernel_src/kiln_embed_sources.cmake
              ${CMAKE_CURRENT_LIST_DIR}/remote_libraries.cmake
        DESTINATION ${package_folder})

set(pkgconfig_folder ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH prefix_from_pkgconfig ${pkgconfig_folder} ${CMAKE_INSTALL_PREFIX})
file(RELATIVE_PATH include_from_pkgconfig ${pkgconfig_folder} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
function(kiln_install_pkgconfig name description requires libs libs_private)
  configure_file(${CMAKE_CURRENT_FUNCTION_LIST_DIR}/kiln.pc.in ${PROJECT_BINARY_DIR}/${name}.pc
                 @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
kiln_install_pkgconfig(kiln "${PROJECT_DESCRIPTION}" "" "-lkiln_runtime -lkiln_cache"
                       "-pthread -ldl${remote_libs}")
kiln_install_pkgconfig(kiln-kernels "The kernels that Kiln ships" "kiln" "-lkiln_kernels" "")
kiln_install_pkgconfig(kiln-spdlog "Kiln's log sink over spdlog" "kiln" "-lkiln_spdlog" "")

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/cache/FORMAT.md
              ${PROJECT_SOURCE_DIR}/cache/BUNDLE.md ${PROJECT_SOURCE_DIR}/cache/REMOTE.md
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
