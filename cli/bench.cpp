// kiln bench: times a shipped kernel from the cache against a fresh compile of it, so that an
// operator sees that a cache serves the same bytes at the same speed. Needs a GPU.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/settings.hpp"
#include "cli/verbs.hpp"
#include "kiln/bench.hpp"
#include "kiln/kernels/benches.hpp"
#include "kiln/kernels/kernels.hpp"
#include "kiln/runtime.hpp"

namespace kiln::cli {
namespace {

constexpr unsigned kMostRounds = 100'000;
constexpr unsigned kWarmCalls = 20;
constexpr unsigned kColdCalls = 10;

struct BenchArguments {
  Given given{};
  std::string kernel{};
  std::vector<std::uint64_t> tokens = {1, 8, 64};
  unsigned rounds = bench::CompareOptions{}.rounds;
  bool warm = false;  // what happens when neither is given
  bool cold = false;
};

std::string known_benches() {
  std::string names;
  for (const auto& known : kernels::kernel_benches())
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  return names;
}

const kernels::KernelBench* find_bench(std::string_view name) {
  for (const auto& known : kernels::kernel_benches())
    if (known.name == name) return &known;
  return nullptr;
}

Result<Runtime> open_runtime(const RuntimeOptions& options) {
  KILN_TRY(auto runtime, Runtime::open(options));
  if (auto status = kernels::add_sources(runtime); !status) return status.error();
  return runtime;
}

/// A kernel that is compiled here and now, and the same one as the cache gives it.
struct Kernels {
  Runtime fresh;
  Runtime cached;
  std::string architecture;
  RuntimeOptions options;

  static Result<Kernels> open(const RuntimeOptions& options) {
    auto fresh_options = options;
    fresh_options.cache_directory.clear();
    KILN_TRY(auto fresh, open_runtime(fresh_options));
    KILN_TRY(const auto device, fresh.device());
    KILN_TRY(auto cached, open_runtime(options));
    return Kernels{std::move(fresh), std::move(cached), device.architecture, options};
  }

  /// Has the kernel in the cache, and gives what a runtime that compiles nothing finds there.
  Result<Artifact> from_cache(const KernelSpec& spec) {
    {
      // Of its own, so that `cached` has nothing in memory that the disk does not.
      KILN_TRY(auto filling, open_runtime(options));
      KILN_TRY(const auto id, filling.add(spec));
      KILN_TRY(const auto stored, filling.artifact(id, architecture));
      static_cast<void>(stored);
    }
    KILN_TRY(const auto id, cached.add(spec));
    KILN_TRY(auto artifact, cached.artifact(id, architecture));
    if (cached.counters().compiles != 0)
      return Error(ErrorCode::io_failed, spec.name + " could not be stored in " +
                                             options.cache_directory.string() +
                                             ", so there is no cached kernel to time");
    return artifact;
  }

  Result<Artifact> compiled(const KernelSpec& spec) {
    KILN_TRY(const auto id, fresh.add(spec));
    return fresh.artifact(id, architecture);
  }
};

bool equal_cubins(const Artifact& one, const Artifact& other) {
  return one.cubin_bytes == other.cubin_bytes &&
         std::memcmp(one.cubin, other.cubin, one.cubin_bytes) == 0;
}

struct Row {
  bench::Receipt receipt{};
  bool equal_cubins = false;
};

Result<Row> measure(Kernels& kernels, const bench::Device& device,
                    const kernels::KernelBench& known, std::size_t problem, std::uint64_t tokens,
                    const BenchArguments& arguments) {
  KILN_TRY(const auto made, known.make(device, problem, tokens));
  KILN_TRY(const auto cached, kernels.from_cache(made.spec));
  KILN_TRY(const auto compiled, kernels.compiled(made.spec));
  KILN_TRY(const auto baseline, made.arm(kernels.fresh, "fresh compile"));
  KILN_TRY(const auto candidate, made.arm(kernels.cached, "from the cache"));
  const bench::DeviceTiming timing{.l2 = arguments.cold ? bench::L2::cold : bench::L2::warm,
                                   .calls = arguments.cold ? kColdCalls : kWarmCalls};
  KILN_TRY(auto comparison,
           bench::compare_device(
               device, baseline, candidate, timing,
               {.claim = bench::Claim::same, .rounds = arguments.rounds, .bitwise_parity = true}));
  Row row{
      .receipt = {.name = std::string(known.problems[problem]) + ", " + counted(tokens, "token"),
                  .timing = timing_text(timing),
                  .comparison = std::move(comparison),
                  .provenance = bench::provenance()},
      .equal_cubins = equal_cubins(cached, compiled)};
  row.receipt.provenance.device = device.name();
  row.receipt.provenance.toolkit = cached.facts.toolchain;
  row.receipt.provenance.key = cached.key.hex();
  return row;
}

Outcome run(const BenchArguments& arguments, Output& output) {
  const auto* known = find_bench(arguments.kernel);
  if (known == nullptr)
    return usage_failure("there is no benchmark of \"" + arguments.kernel +
                         "\"; the kernels that have one are " + known_benches());
  auto settings = settings_from(arguments.given, process_environment());
  if (!settings) return failure_of(settings.error());
  if (settings->runtime.cache_directory.empty()) return no_cache_directory();
  settings->runtime.log = output.log_sink(LogLevel::warning);
  auto kernels = Kernels::open(settings->runtime);
  if (!kernels) return failure_of(kernels.error());
  const auto device = bench::Device::open(kernels->fresh);
  if (!device) return failure_of(device.error());

  output.line(std::string(known->name) + " on " + device->name() + ", " + kernels->architecture +
              ": from the cache against a fresh compile");
  output.line(bench::table_head());
  bool all_held = true;
  auto receipts = Json::array();
  for (std::size_t problem = 0; problem < known->problems.size(); ++problem)
    for (const auto tokens : arguments.tokens) {
      const auto row = measure(*kernels, *device, *known, problem, tokens, arguments);
      if (!row) return failure_of(row.error());
      output.line(bench::table_row(row->receipt));
      if (!row->equal_cubins) output.line("    the cached cubin differs from the fresh one");
      auto receipt = Json::parse(bench::to_json(row->receipt));
      receipt["equal_cubins"] = row->equal_cubins;
      receipts.push_back(std::move(receipt));
      all_held &= row->receipt.comparison.verdict == bench::Verdict::held;
    }
  output.object({{"kernel", known->name},
                 {"device", device->name()},
                 {"arch", kernels->architecture},
                 {"cache_dir", settings->runtime.cache_directory.string()},
                 {"all_held", all_held},
                 {"receipts", std::move(receipts)}});
  return all_held ? ExitCode::done : ExitCode::failed;
}

}  // namespace

Verb add_bench(CLI::App& kiln) {
  auto& verb = add_verb(
      kiln, "bench", "Time a kernel from the cache against a fresh compile of it; needs a GPU",
      "Examples:\n"
      "  kiln bench --kernel dsv41_kv_insert\n"
      "  kiln bench --kernel dsv41_kv_insert --tokens 1,8,64 --cold --rounds 80 --json\n"
      "A row holds when both outputs are right and equal, byte for byte, and the median times are\n"
      "within 2 %. It is refused when the clock was low, the order of the two mattered or the "
      "times\n"
      "drifted, twice over. What is not in the cache is compiled and stored first.\n"
      "Exit codes: 0 every row holds; 1 one does not, or is refused; 2 usage; 3 no GPU, no NVRTC "
      "or\n"
      "no cache directory.");
  const auto arguments = std::make_shared<BenchArguments>();
  require(add_option(verb, "--kernel", arguments->kernel, "NAME",
                     "A kernel of Kiln: " + known_benches()));
  decimal(*verb.add_option("--tokens", arguments->tokens, "Tokens of a call, with commas [1,8,64]")
               ->type_name("N")
               ->delimiter(',')
               ->allow_extra_args(false)
               ->check(CLI::Range(std::uint64_t{1}, kernels::kMostBenchTokens).description("")));
  decimal(*verb.add_option("--rounds", arguments->rounds, "Rounds, a multiple of 4 from 8 on [40]")
               ->type_name("N")
               ->check(CLI::Range(8u, kMostRounds).description("")))
      .check([](const std::string& text) {
        // Of a number it is enough to look at the last two digits.
        const auto digits = text.substr(text.size() > 2 ? text.size() - 2 : 0);
        return std::atoi(digits.c_str()) % 4 == 0 ? std::string()
                                                  : text + " is not a multiple of 4";
      });
  auto& warm = add_flag(verb, "--warm", arguments->warm, "With a warm L2 cache; the default");
  exclude(add_flag(verb, "--cold", arguments->cold,
                   "With an L2 cache that is flushed before each call"),
          warm);
  add_cache_directory(verb, arguments->given);
  add_read_only_caches(verb, arguments->given);
  return {&verb, [arguments](Output& output) { return run(*arguments, output); }};
}

}  // namespace kiln::cli
