// The options of NVRTC 12.8 to 13.5, and what Kiln does with each.
//
// Threads: constants.
#pragma once

#include <string_view>

namespace kiln {

enum class OptionValue : unsigned char { none, boolean, number, choice, text, macro };

enum class OptionRepeat : unsigned char {
  last,         ///< the last value counts
  all,          ///< every value counts, in order: options for the assembler
  diagnostics,  ///< the same, together with the other diagnostics: the last word on a number counts
  by_name,      ///< the last one for each macro
};

struct OptionRule {
  std::string_view name{};        ///< the canonical, long name
  std::string_view short_name{};  ///< empty for none
  OptionValue value = OptionValue::none;
  OptionRepeat repeat = OptionRepeat::last;
  std::string_view choices{};  ///< "a|b", each maybe followed by "@major.minor"
  int since_major = 0;         ///< 0: the oldest NVRTC that Kiln takes has it
  int since_minor = 0;
  std::string_view refusal{};  ///< why it may not be given; empty when it is passed on
};

namespace option_refusals {
inline constexpr std::string_view kTarget =
    "the architecture comes from the device or the call, not from a kernel's options";
inline constexpr std::string_view kOutput = "Kiln makes whole cubins and nothing else";
inline constexpr std::string_view kInput =
    "it reads what the key does not hold; use Runtime::add_source or RuntimeOptions::include_roots";
inline constexpr std::string_view kFiles = "it writes files, which a cache hit would not";
inline constexpr std::string_view kSearch = "toolkit headers need their own folder to be searched";
inline constexpr std::string_view kCache = "Kiln sets it by itself";
inline constexpr std::string_view kMinimal =
    "set KernelSpec::builtins to Builtins::minimal instead";
inline constexpr std::string_view kTile = "Kiln makes no tile programs";
}  // namespace option_refusals

// clang-format off
inline constexpr OptionRule kOptionRules[] = {
    // Passed on.
    {"--device-debug", "-G"},
    {"--generate-line-info", "-lineinfo"},
    {"--dopt", "-dopt", OptionValue::choice, OptionRepeat::last, "on"},
    {"--Ofast-compile", "-Ofc", OptionValue::choice, OptionRepeat::last, "0|min|mid|max", 12, 9},
    {"--ptxas-options", "-Xptxas", OptionValue::text, OptionRepeat::all},
    {"--maxrregcount", "-maxrregcount", OptionValue::number},
    {"--ftz", "-ftz", OptionValue::boolean},
    {"--prec-sqrt", "-prec-sqrt", OptionValue::boolean},
    {"--prec-div", "-prec-div", OptionValue::boolean},
    {"--fmad", "-fmad", OptionValue::boolean},
    {"--use_fast_math", "-use_fast_math"},
    {"--fno-signed-zeros", "-fno-signed-zeros", OptionValue::none, OptionRepeat::last, {}, 13, 4},
    {"--ffinite-math-only", "-ffinite-math-only", OptionValue::none, OptionRepeat::last, {}, 13, 4},
    {"--extra-device-vectorization", "-extra-device-vectorization"},
    {"--modify-stack-limit", "-modify-stack-limit", OptionValue::boolean},
    {"--jump-table-density", "-jtd", OptionValue::number},
    {"--device-stack-protector", "-device-stack-protector", OptionValue::boolean},
    {"--frandom-seed", "-frandom-seed", OptionValue::text, OptionRepeat::last, {}, 12, 9},
    {"--define-macro", "-D", OptionValue::macro, OptionRepeat::by_name},
    {"--undefine-macro", "-U", OptionValue::macro, OptionRepeat::by_name},
    // Before C++17 there are trigraphs, and before C++11 no raw strings: the include scan would not
    // see what the compiler sees.
    {"--std", "-std", OptionValue::choice, OptionRepeat::last, "c++17|c++20|c++23@13.3"},
    {"--builtin-move-forward", "-builtin-move-forward", OptionValue::boolean},
    {"--builtin-initializer-list", "-builtin-initializer-list", OptionValue::boolean},
    {"--disable-warnings", "-w"},
    {"--Wreorder", "-Wreorder", OptionValue::none, OptionRepeat::last, {}, 13, 1},
    {"--Wconversion", "-Wconversion", OptionValue::none, OptionRepeat::last, {}, 13, 4},
    {"--warning-as-error", "-Werror", OptionValue::text, OptionRepeat::diagnostics, {}, 13, 1},
    {"--fmax-errors", "-fmax-errors", OptionValue::number, OptionRepeat::last, {}, 13, 4},
    {"--restrict", "-restrict"},
    {"--device-as-default-execution-space", "-default-device"},
    {"--device-int128", "-device-int128"},
    {"--device-float128", "-device-float128"},
    {"--optimization-info", "-opt-info", OptionValue::choice, OptionRepeat::last, "inline"},
    {"--display-error-number", "-err-no"},
    {"--no-display-error-number", "-no-err-no"},
    {"--diag-error", "-diag-error", OptionValue::text, OptionRepeat::diagnostics},
    {"--diag-suppress", "-diag-suppress", OptionValue::text, OptionRepeat::diagnostics},
    {"--diag-warn", "-diag-warn", OptionValue::text, OptionRepeat::diagnostics},
    {"--brief-diagnostics", "-brief-diag", OptionValue::boolean},
    {"--split-compile", "-split-compile", OptionValue::number},
    {"--utf-8", "-utf-8", OptionValue::none, OptionRepeat::last, {}, 13, 4},

    // Refused.
    {"--gpu-architecture", "-arch", OptionValue::text, OptionRepeat::last, {}, 0, 0, option_refusals::kTarget},
    {"--gpu-code", "-code", OptionValue::text, OptionRepeat::last, {}, 0, 0, option_refusals::kTarget},
    {"--device-c", "-dc", OptionValue::none, OptionRepeat::last, {}, 0, 0, option_refusals::kOutput},
    {"--device-w", "-dw", OptionValue::none, OptionRepeat::last, {}, 0, 0, option_refusals::kOutput},
    {"--relocatable-device-code", "-rdc", OptionValue::boolean, OptionRepeat::last, {}, 0, 0, option_refusals::kOutput},
    {"--extensible-whole-program", "-ewp", OptionValue::none, OptionRepeat::last, {}, 0, 0, option_refusals::kOutput},
    {"--dlink-time-opt", "-dlto", OptionValue::none, OptionRepeat::last, {}, 0, 0, option_refusals::kOutput},
    {"--gen-opt-lto", "-gen-opt-lto", OptionValue::none, OptionRepeat::last, {}, 0, 0, option_refusals::kOutput},
    {"--optix-ir", "-optix-ir", OptionValue::none, OptionRepeat::last, {}, 0, 0, option_refusals::kOutput},
    {"--fdevice-syntax-only", "-fdevice-syntax-only", OptionValue::none, OptionRepeat::last, {}, 0, 0, option_refusals::kOutput},
    {"--include-path", "-I", OptionValue::text, OptionRepeat::last, {}, 0, 0, option_refusals::kInput},
    {"--pre-include", "-include", OptionValue::text, OptionRepeat::last, {}, 0, 0, option_refusals::kInput},
    {"--use-bundled-headers", "", OptionValue::text, OptionRepeat::last, {}, 0, 0, option_refusals::kInput},
    {"--no-source-include", "-no-source-include", OptionValue::none, OptionRepeat::last, {}, 0, 0, option_refusals::kSearch},
    {"--pch", "-pch", OptionValue::none, OptionRepeat::last, {}, 0, 0, option_refusals::kFiles},
    {"--create-pch", "-create-pch", OptionValue::text, OptionRepeat::last, {}, 0, 0, option_refusals::kFiles},
    {"--use-pch", "-use-pch", OptionValue::text, OptionRepeat::last, {}, 0, 0, option_refusals::kInput},
    {"--pch-dir", "-pch-dir", OptionValue::text, OptionRepeat::last, {}, 0, 0, option_refusals::kFiles},
    {"--pch-verbose", "-pch-verbose", OptionValue::boolean, OptionRepeat::last, {}, 0, 0, option_refusals::kFiles},
    {"--pch-messages", "-pch-messages", OptionValue::boolean, OptionRepeat::last, {}, 0, 0, option_refusals::kFiles},
    {"--instantiate-templates-in-pch", "-instantiate-templates-in-pch", OptionValue::boolean, OptionRepeat::last, {}, 0, 0, option_refusals::kFiles},
    {"--time", "-time", OptionValue::text, OptionRepeat::last, {}, 0, 0, option_refusals::kFiles},
    {"--fdevice-time-trace", "-fdevice-time-trace", OptionValue::text, OptionRepeat::last, {}, 0, 0, option_refusals::kFiles},
    {"--no-cache", "-no-cache", OptionValue::none, OptionRepeat::last, {}, 0, 0, option_refusals::kCache},
    {"--minimal", "-minimal", OptionValue::none, OptionRepeat::last, {}, 0, 0, option_refusals::kMinimal},
    {"--enable-tile", "-enable-tile", OptionValue::none, OptionRepeat::last, {}, 0, 0, option_refusals::kTile},
    {"--tile-only", "-tile-only", OptionValue::none, OptionRepeat::last, {}, 0, 0, option_refusals::kTile},
    {"--simt-only", "-simt-only", OptionValue::none, OptionRepeat::last, {}, 0, 0, option_refusals::kTile},
    {"--default-tile", "-default-tile", OptionValue::none, OptionRepeat::last, {}, 0, 0, option_refusals::kTile},
    {"--diagnose-implicit-tile-var", "-diagnose-implicit-tile-var", OptionValue::none, OptionRepeat::last, {}, 0, 0, option_refusals::kTile},
    {"--tile-preview", "-tile-preview", OptionValue::text, OptionRepeat::last, {}, 0, 0, option_refusals::kTile},
};
// clang-format on

/// Options of the assembler that may not come through --ptxas-options, with their reasons.
struct AssemblerRefusal {
  std::string_view name{};
  std::string_view refusal{};
};
inline constexpr AssemblerRefusal kAssemblerRefusals[] = {
    {"--gpu-name", option_refusals::kTarget},
    {"-arch", option_refusals::kTarget},
    {"--compile-only", option_refusals::kOutput},
    {"-c", option_refusals::kOutput},
    {"--extensible-whole-program", option_refusals::kOutput},
    {"-ewp", option_refusals::kOutput},
    {"--output-file", option_refusals::kFiles},
    {"-o", option_refusals::kFiles},
    {"--options-file", option_refusals::kInput},
    {"-optf", option_refusals::kInput},
    {"--ext-desc-file", option_refusals::kInput},
    {"-ext-desc-file", option_refusals::kInput},
    {"--compiler-stats-file", option_refusals::kFiles},
    {"--fdevice-time-trace", option_refusals::kFiles},
};

/// Those that take what comes after them for their value; of the others it is a file to assemble as
/// well, -O included.
// clang-format off
inline constexpr std::string_view kAssemblerApart[] = {
    "--Ofast-compile", "-Ofc", "--allow-expensive-optimizations", "-allow-expensive-optimizations",
    "--def-load-cache", "-dlcm", "--def-store-cache", "-dscm",
    "--device-function-maxrregcount", "-func-maxrregcount",
    "--device-stack-protector", "-device-stack-protector", "--entry", "-e", "--fmad", "-fmad",
    "--force-load-cache", "-flcm", "--force-store-cache", "-fscm", "--input-as-string", "-ias",
    "--machine", "-m", "--maxntid", "-maxntid", "--maxrregcount", "-maxrregcount",
    "--minnctapersm", "-minnctapersm", "--opt-level", "--position-independent-code", "-pic",
    "--register-usage-level", "-regUsageLevel", "--sanitize", "-sanitize",
    "--split-compile", "-split-compile",
};
// clang-format on

}  // namespace kiln
