# Text files compiled into a target as a table of (include name, text), at build time.
#
#   kiln_embed_sources(TARGET <target> [NAMESPACE <a::b>] [TABLE <function>] [PREFIX <p>]
#                      [BASE <folder>] FILES <paths below it>...)
#
# gives <target>, which links kiln::runtime, a header <function>.hpp with
#
#   std::span<const kiln::SourceText> <namespace>::<function>() noexcept;
#
# for Runtime::add_sources. FILES are paths below BASE, and the name of each in the table, by which
# others include it, is <p>/<path>. Without BASE it is the current folder; another serves for sources
# that lie elsewhere, and for what the build generates (BASE ${CMAKE_CURRENT_BINARY_DIR}, after the
# add_custom_command). Files of several folders take a call each, with a TABLE each. Without
# NAMESPACE it is the target's name as an identifier, without TABLE the function is embedded_sources.
# Call it in the folder that made the target.
#
# This file is also the script that runs when one of the texts has changed.

if(NOT CMAKE_SCRIPT_MODE_FILE)
  function(kiln_embed_sources)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "TARGET;NAMESPACE;TABLE;PREFIX;BASE" "FILES")
    set(me "kiln_embed_sources(TARGET ${arg_TARGET})")
    if(arg_UNPARSED_ARGUMENTS)
      message(FATAL_ERROR "${me}: unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
    endif()
    if(NOT TARGET "${arg_TARGET}")
      message(FATAL_ERROR "${me}: there is no such target")
    endif()
    get_target_property(folder ${arg_TARGET} SOURCE_DIR)
    if(NOT folder STREQUAL CMAKE_CURRENT_SOURCE_DIR)
      message(FATAL_ERROR "${me}: call it in ${folder}, which made the target")
    endif()
    if(NOT arg_FILES)
      message(FATAL_ERROR "${me}: FILES names nothing")
    endif()
    if(NOT arg_NAMESPACE)
      string(MAKE_C_IDENTIFIER "${arg_TARGET}" arg_NAMESPACE)
    endif()
    if(NOT arg_TABLE)
      set(arg_TABLE embedded_sources)
    endif()

    # Relative to the current folder, as CMake's own paths are.
    get_filename_component(base "${arg_BASE}" ABSOLUTE)

    set(inputs)
    foreach(name IN LISTS arg_FILES)
      # Include names are relative and have no dots for parts.
      if(IS_ABSOLUTE "${name}" OR "/${name}/" MATCHES "/(\\.|\\.\\.|)/")
        message(FATAL_ERROR "${me}: ${name} is not a plain path below ${base}; name the "
                "folder that it lies in by BASE, and the path from there")
      endif()
      set(input "${base}/${name}")
      get_source_file_property(is_generated "${input}" GENERATED)
      if(IS_DIRECTORY "${input}" OR NOT (is_generated OR EXISTS "${input}"))
        message(FATAL_ERROR "${me}: FILES names ${name}, but there is no file ${input}, and no "
                "command before this call generates it")
      endif()
      if(input IN_LIST inputs)
        message(FATAL_ERROR "${me}: FILES names ${name} twice")
      endif()
      list(APPEND inputs "${input}")
    endforeach()

    set(output "${CMAKE_CURRENT_BINARY_DIR}/kiln_embed/${arg_TARGET}/${arg_TABLE}")
    get_target_property(sources ${arg_TARGET} SOURCES)
    if("${output}.cpp" IN_LIST sources)
      message(FATAL_ERROR "${me}: the target has a table ${arg_TABLE} already; name another TABLE")
    endif()
    string(CONCAT header "// Written by kiln_embed_sources.\n"
      "#pragma once\n\n#include <kiln/runtime.hpp>\n#include <span>\n\n"
      "namespace ${arg_NAMESPACE} {\n\n"
      "std::span<const ::kiln::SourceText> ${arg_TABLE}() noexcept;\n\n"
      "}  // namespace ${arg_NAMESPACE}\n")
    file(CONFIGURE OUTPUT "${output}.hpp" CONTENT "${header}" @ONLY)
    # Through a file, and not the command line: no limit on length, and a change of the list is seen.
    list(JOIN arg_FILES "\n" lines)
    file(CONFIGURE OUTPUT "${output}.list" CONTENT "${lines}\n" @ONLY)
    set(script "${CMAKE_CURRENT_FUNCTION_LIST_FILE}")
    add_custom_command(
      OUTPUT "${output}.cpp"
      COMMAND "${CMAKE_COMMAND}" "-DROOT=${base}" "-DOUTPUT=${output}"
              "-DNAMESPACE=${arg_NAMESPACE}" "-DTABLE=${arg_TABLE}" "-DPREFIX=${arg_PREFIX}"
              -P "${script}"
      DEPENDS ${inputs} "${output}.list" "${script}"
      COMMENT "Embedding ${arg_TABLE} of ${arg_TARGET}"
      VERBATIM)
    # Clang warns of literals above 64 KiB; every compiler in use takes far longer ones.
    set_source_files_properties("${output}.cpp" PROPERTIES COMPILE_OPTIONS -Wno-overlength-strings)
    target_sources(${arg_TARGET} PRIVATE "${output}.cpp")
    target_include_directories(${arg_TARGET} PRIVATE
                               "${CMAKE_CURRENT_BINARY_DIR}/kiln_embed/${arg_TARGET}")
  endfunction()
  return()
endif()

# Never file(CONFIGURE) or a list of texts below: both would change ${}, @x@ and semicolons.
set(delimiter kiln_source)
file(STRINGS "${OUTPUT}.list" names ENCODING UTF-8)
set(entries "")
foreach(name IN LISTS names)
  file(READ "${ROOT}/${name}" text)
  string(FIND "${text}" ")${delimiter}\"" found)
  if(NOT found EQUAL -1)
    message(FATAL_ERROR "${name} holds )${delimiter}\", which ends the raw string around it")
  endif()
  if(PREFIX)
    set(name "${PREFIX}/${name}")
  endif()
  string(APPEND entries "    {\"${name}\", R\"${delimiter}(")
  string(APPEND entries "${text}")
  string(APPEND entries ")${delimiter}\"},\n")
endforeach()
string(CONCAT unit "// Written by kiln_embed_sources.\n"
  "#include \"${TABLE}.hpp\"\n\n"
  "namespace ${NAMESPACE} {\n"
  "namespace {\n\n"
  "constexpr ::kiln::SourceText kTable[] = {\n")
string(APPEND unit "${entries}")
string(APPEND unit "};\n\n}  // namespace\n\n"
  "std::span<const ::kiln::SourceText> ${TABLE}() noexcept { return kTable; }\n\n"
  "}  // namespace ${NAMESPACE}\n")
file(WRITE "${OUTPUT}.cpp" "${unit}")
