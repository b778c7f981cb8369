#include <string>

#include "kiln/runtime.hpp"
#include "runtime/decimal_text.hpp"

namespace kiln {
namespace {

class Text {
 public:
  void head(const char* name, const char* type, const char* help) {
    text_ += std::string("# HELP kiln_") + name + ' ' + help + "\n# TYPE kiln_" + name + ' ' +
             type + '\n';
  }
  void value(const std::string& name, std::uint64_t number) {
    text_ += "kiln_" + name + ' ' + std::to_string(number) + '\n';
  }
  void counter(const char* name, const char* help, std::uint64_t number) {
    head(name, "counter", help);
    value(name, number);
  }
  // Prometheus' buckets hold all that is within their bound, and so does each after it.
  void histogram(const char* name, const char* help, const TimeHistogram& times) {
    head(name, "histogram", help);
    std::uint64_t within = 0;
    for (std::size_t i = 0; i < times.counts.size(); ++i) {
      within += times.counts[i];
      const auto bound = i < TimeHistogram::kBounds.size() ? decimal_text(TimeHistogram::kBounds[i])
                                                           : std::string("+Inf");
      value(std::string(name) + "_bucket{le=\"" + bound + "\"}", within);
    }
    text_ += std::string("kiln_") + name + "_sum " +
             decimal_text(static_cast<double>(times.microseconds) / 1e6, 6) + '\n';
    value(std::string(name) + "_count", within);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

std::string to_prometheus(const RuntimeCounters& counters) {
  Text text;
  text.head("hits_total", "counter", "Kernels found without a compile, by where.");
  text.value("hits_total{tier=\"disk\"}", counters.disk_hits);
  text.value("hits_total{tier=\"lower\"}", counters.lower_tier_hits);
  text.value("hits_total{tier=\"remote\"}", counters.remote_hits);
  text.counter("misses_total", "Kernels that the store did not have.", counters.disk_misses);
  text.counter("compiles_total", "Compiles that succeeded.", counters.compiles);
  text.counter("failed_compiles_total", "Compiles that failed.", counters.failed_compiles);
  text.counter("waits_total", "Kernels that another thread or process compiled meanwhile.",
               counters.waits);
  text.counter("late_requests_total", "Requests after the seal for what was not warmed up.",
               counters.late_requests);
  text.counter("late_compiles_total", "Compiles after the seal.", counters.late_compiles);
  text.counter("damaged_entries_total", "Entries of the store that were not used.",
               counters.damaged_entries);
  text.counter("failed_stores_total", "Compiled kernels that could not be stored.",
               counters.failed_stores);
  text.counter("module_loads_total", "Modules handed to the driver.", counters.module_loads);
  text.head("bytes_total", "counter", "Bytes of machine code, by where it came from.");
  text.value("bytes_total{from=\"compile\"}", counters.compiled_bytes);
  text.value("bytes_total{from=\"disk\"}", counters.disk_bytes);
  text.head("descriptors", "gauge", "Launch descriptors in use.");
  text.value("descriptors", counters.descriptors);
  text.histogram("compile_seconds", "Time in the compiler.", counters.compile_time);
  text.histogram("verify_seconds", "Time to read and check an entry.", counters.verify_time);
  return text.take();
}

}  // namespace kiln
