# The kernels' public headers under the names that users know, <kiln/kernels/...>. In the repository
# they include each other as "kernel_src/...", because device code does and those names are part of
# compile keys.

# In the build: headers that include the real ones, under both names, so that the path of a user
# who builds Kiln with add_subdirectory holds nothing else of this repository.
set(forwarding ${CMAKE_CURRENT_BINARY_DIR}/include)
foreach(header IN LISTS public_headers)
  foreach(name IN ITEMS kiln/kernels kernel_src)
    file(CONFIGURE OUTPUT ${forwarding}/${name}/${header}
         CONTENT "#include \"${CMAKE_CURRENT_SOURCE_DIR}/${header}\"\n" @ONLY)
  endforeach()
endforeach()
target_include_directories(kiln_kernels PUBLIC $<BUILD_INTERFACE:${forwarding}>
                                               $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
# For the test that each stands alone.
set_target_properties(kiln_kernels PROPERTIES KILN_PUBLIC_HEADERS "${public_headers}")

# Installed: the headers themselves, with the names changed.
if(KILN_INSTALL)
  set(renamed ${CMAKE_CURRENT_BINARY_DIR}/renamed)
  install(CODE "
    foreach(header IN ITEMS ${public_headers})
      file(READ \"${CMAKE_CURRENT_SOURCE_DIR}/\${header}\" text)
      string(REPLACE \"#include \\\"kernel_src/\" \"#include \\\"kiln/kernels/\" text \"\${text}\")
      file(WRITE \"${renamed}/\${header}\" \"\${text}\")
    endforeach()")
  foreach(header IN LISTS public_headers)
    get_filename_component(folder ${header} DIRECTORY)
    install(FILES ${renamed}/${header}
            DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kiln/kernels/${folder})
  endforeach()
endif()
