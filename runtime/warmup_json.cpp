// The report of a warmup for programs: as JSON, and as a trace.
#include <nlohmann/json.hpp>
#include <string>

#include "kiln/warmup.hpp"

namespace kiln {
namespace {

using Json = nlohmann::ordered_json;

double in_milliseconds(std::chrono::nanoseconds time) {
  return static_cast<double>(time.count()) / 1e6;
}
double in_microseconds(std::chrono::nanoseconds time) {
  return static_cast<double>(time.count()) / 1e3;
}

// Names and logs need not be UTF-8.
std::string one_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json json_of(const KernelReport& kernel) {
  Json json = {{"kernel", kernel.kernel},
               {"key", kernel.key == cache::Digest{} ? std::string() : kernel.key.hex()},
               {"arch", kernel.architecture},
               {"group", kernel.group},
               {"origin", to_string(kernel.origin)},
               {"ms", in_milliseconds(kernel.time)},
               {"began_ms", in_milliseconds(kernel.began)},
               {"queue_ms", in_milliseconds(kernel.queue)},
               {"verify_ms", in_milliseconds(kernel.verify)},
               {"compile_ms", in_milliseconds(kernel.compile)},
               {"load_ms", in_milliseconds(kernel.load)},
               {"load_began_ms", in_milliseconds(kernel.load_began)},
               {"lane", kernel.lane},
               {"retried", kernel.retried},
               {"header_shared", kernel.header_shared},
               {"bytes", kernel.cubin_bytes},
               {"peak_bytes", kernel.peak_bytes},
               {"registers", kernel.usage.registers},
               {"spill_store_bytes", kernel.usage.spill_store_bytes},
               {"spill_load_bytes", kernel.usage.spill_load_bytes},
               {"stored", kernel.status.ok() && kernel.stored},
               {"log", kernel.log}};
  if (!kernel.status) {
    const auto& error = kernel.status.error();
    json["error"] = {{"code", to_string(error.code())}, {"message", error.message()}};
    if (!error.detail().empty()) json["error"]["detail"] = error.detail();
  }
  return json;
}

}  // namespace

std::string to_json(const WarmupReport& report) {
  auto kernels = Json::array();
  double verify = 0, compile = 0, load = 0;
  for (const auto& kernel : report.kernels) {
    kernels.push_back(json_of(kernel));
    verify += in_milliseconds(kernel.verify);
    compile += in_milliseconds(kernel.compile);
    load += in_milliseconds(kernel.load);
  }
  return one_line({{"requested", report.requested},
                   {"compiled", report.compiled},
                   {"hits", report.hits},
                   {"waited", report.waited},
                   {"failed", report.failed},
                   {"not_stored", report.not_stored},
                   {"bytes", report.cubin_bytes},
                   {"jobs", report.jobs},
                   {"jobs_reason", report.jobs_reason},
                   {"stopped", report.stopped},
                   {"nvrtc_loaded", report.nvrtc_loaded},
                   {"toolchain", report.toolchain},
                   {"seconds", in_milliseconds(report.time) / 1e3},
                   {"verify_ms", verify},
                   {"compile_ms", compile},
                   {"load_ms", load},
                   {"kernels", std::move(kernels)}});
}

// The form of Chrome's trace events: a name, a beginning and a duration in microseconds, and a row.
std::string to_trace(const WarmupReport& report) {
  auto events = Json::array();
  for (const auto& kernel : report.kernels) {
    const auto event = [&](const std::string& name, const char* category,
                           std::chrono::nanoseconds began, std::chrono::nanoseconds took,
                           unsigned row) {
      events.push_back({{"name", name},
                        {"cat", category},
                        {"ph", "X"},
                        {"ts", in_microseconds(began)},
                        {"dur", in_microseconds(took)},
                        {"pid", 1},
                        {"tid", row},
                        {"args",
                         {{"key", kernel.key.hex()},
                          {"origin", to_string(kernel.origin)},
                          {"bytes", kernel.cubin_bytes},
                          {"registers", kernel.usage.registers}}}});
    };
    const auto name = kernel.kernel + " " + kernel.architecture;
    const auto worked = kernel.compile.count() != 0 ? kernel.compile : kernel.verify;
    event(name, std::string(to_string(kernel.origin)).c_str(), kernel.began, worked, kernel.lane);
    // Loads are the calling thread's, one after the other.
    if (kernel.load.count() != 0) event("load " + name, "load", kernel.load_began, kernel.load, 0);
  }
  return one_line({{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}});
}

}  // namespace kiln
