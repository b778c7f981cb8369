# Text files to one C++ unit with a table of (include name, raw string), at build time.
#
#   embed_sources(OUTPUT <file.cpp> TABLE <function> [PREFIX <p>] FILES <relative paths...>)
#
# defines std::span<const kiln::SourceText> kiln::kernels::<function>(); a file's name in it is
# <p>/<relative path>. The same file is the script that runs when one of the inputs has changed.

if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(KILN_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})

  function(embed_sources)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "OUTPUT;TABLE;PREFIX" "FILES")
    set(output ${CMAKE_CURRENT_BINARY_DIR}/${arg_OUTPUT})
    # Through a file, and not the command line: no limit on length, and a change of the list is seen.
    list(JOIN arg_FILES "\n" lines)
    file(CONFIGURE OUTPUT ${output}.list CONTENT "${lines}\n" @ONLY)
    list(TRANSFORM arg_FILES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE inputs)
    add_custom_command(
      OUTPUT ${output}
      COMMAND ${CMAKE_COMMAND} -DROOT=${CMAKE_CURRENT_SOURCE_DIR} -DLIST=${output}.list
              -DOUTPUT=${output} -DTABLE=${arg_TABLE} -DPREFIX=${arg_PREFIX} -P ${KILN_EMBED_SCRIPT}
      DEPENDS ${inputs} ${output}.list ${KILN_EMBED_SCRIPT}
      COMMENT "Embedding ${arg_OUTPUT}"
      VERBATIM)
    # Clang warns of literals above 64 KiB; every compiler in use takes far longer ones.
    set_source_files_properties(${output} PROPERTIES COMPILE_OPTIONS -Wno-overlength-strings)
  endfunction()
  return()
endif()

# Never file(CONFIGURE) or a list of texts below: both would change ${}, @x@ and semicolons.
set(delimiter kiln_source)
file(STRINGS ${LIST} names)
set(entries "")
foreach(name IN LISTS names)
  file(READ ${ROOT}/${name} text)
  string(FIND "${text}" ")${delimiter}\"" found)
  if(NOT found EQUAL -1)
    message(FATAL_ERROR "${name} holds )${delimiter}\", which ends the raw string around it")
  endif()
  if(PREFIX)
    set(name ${PREFIX}/${name})
  endif()
  string(APPEND entries "    {\"${name}\", R\"${delimiter}(")
  string(APPEND entries "${text}")
  string(APPEND entries ")${delimiter}\"},\n")
endforeach()
string(CONCAT unit "// Written by embed_sources.cmake.\n"
  "#include <span>\n\n"
  "#include \"kernel_src/kernels.hpp\"\n\n"
  "namespace kiln::kernels {\n"
  "namespace {\n\n"
  "constexpr SourceText kTable[] = {\n")
string(APPEND unit "${entries}")
string(APPEND unit "};\n\n}  // namespace\n\n"
  "std::span<const SourceText> ${TABLE}() noexcept { return kTable; }\n\n"
  "}  // namespace kiln::kernels\n")
file(WRITE ${OUTPUT} "${unit}")
