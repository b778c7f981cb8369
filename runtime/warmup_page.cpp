// The report of a warmup as one page: a timeline by thread, and a table. Nothing in it is fetched
// from anywhere, and no script runs.
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

#include "kiln/warmup.hpp"

namespace kiln {
namespace {

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Kiln warmup</title><style>
body{font:14px/1.4 system-ui,sans-serif;margin:24px;color:#222;background:#fff}
h1{font-size:20px;margin:0 0 4px}p{margin:4px 0}
.line{position:relative;height:22px;background:#f2f2f2;margin:2px 0 2px 70px}
.line>b{position:absolute;left:-70px;width:62px;text-align:right;font-weight:400;color:#666}
.bar{position:absolute;top:2px;height:18px;min-width:2px;box-shadow:inset -1px 0 #fff;overflow:hidden;white-space:nowrap;
font-size:11px;line-height:18px;color:#fff;text-indent:3px}
.compiled{background:#c2571a}.disk,.memory{background:#2f7d4f}.waited{background:#3b6ea8}
.failed{background:#b00020}.load{background:#7a5ea8}
.axis{margin-left:70px;display:flex;justify-content:space-between;color:#666;font-size:12px}
table{border-collapse:collapse;margin-top:16px}td,th{padding:3px 10px;border-bottom:1px solid #ddd;
text-align:right}td:nth-child(-n+4),th:nth-child(-n+4){text-align:left}
td.f{color:#b00020}pre{margin:0;white-space:pre-wrap;font-size:12px}
.key i{display:inline-block;width:12px;height:12px;margin:0 4px 0 12px;vertical-align:-1px}
</style></head><body>
)";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string number(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

std::string milliseconds_text(std::chrono::nanoseconds time) {
  return number(static_cast<double>(time.count()) / 1e6, 1);
}

class Page {
 public:
  explicit Page(const WarmupReport& report) : report_(report), text_(kHead) {
    whole_ = report.time;
    for (const auto& kernel : report.kernels) {
      whole_ = std::max(whole_, kernel.began + worked(kernel) + kernel.load);
      lanes_ = std::max(lanes_, kernel.lane);
    }
    if (whole_.count() == 0) whole_ = std::chrono::nanoseconds(1);
  }

  std::string make() {
    head();
    bool loads = false;
    for (unsigned lane = 1; lane <= lanes_; ++lane) {
      text_ += "<div class=line><b>thread " + std::to_string(lane) + "</b>";
      for (const auto& kernel : report_.kernels)
        if (kernel.lane == lane)
          bar(kernel, to_string(kernel.origin), kernel.began, worked(kernel));
      text_ += "</div>\n";
    }
    for (const auto& kernel : report_.kernels) loads |= kernel.load.count() != 0;
    if (loads) {
      text_ += "<div class=line><b>load</b>";
      for (const auto& kernel : report_.kernels)
        if (kernel.load.count() != 0)
          bar(kernel, "load", kernel.began + worked(kernel), kernel.load);
      text_ += "</div>\n";
    }
    text_ += "<div class=axis><span>0</span><span>" + milliseconds_text(whole_ / 2) +
             " ms</span><span>" + milliseconds_text(whole_) + " ms</span></div>\n";
    table();
    text_ += "</body></html>\n";
    return std::move(text_);
  }

 private:
  static std::chrono::nanoseconds worked(const KernelReport& kernel) {
    return kernel.compile.count() != 0 ? kernel.compile : kernel.verify;
  }

  void head() {
    text_ += "<h1>Warmup of " + std::to_string(report_.requested) + " kernels</h1><p>" +
             std::to_string(report_.hits) + " hits, " + std::to_string(report_.compiled) +
             " compiled, " + std::to_string(report_.waited) + " waited for, " +
             std::to_string(report_.failed) + " failed, in " + milliseconds_text(report_.time) +
             " ms; " + std::to_string(report_.cubin_bytes) + " bytes of code</p>\n";
    for (const auto& line :
         {report_.jobs_reason,
          report_.stopped.empty() ? std::string() : "stopped early: " + report_.stopped,
          report_.toolchain})
      if (!line.empty()) text_ += "<p>" + escaped(line) + "</p>\n";
    text_ += "<p class=key>";
    for (const char* name : {"compiled", "disk", "waited", "failed", "load"})
      text_ += std::string("<i class=") + name + "></i>" + name;
    text_ += "</p>\n";
  }

  std::string percent(std::chrono::nanoseconds time) const {
    return number(100.0 * static_cast<double>(time.count()) / static_cast<double>(whole_.count()),
                  3);
  }

  void bar(const KernelReport& kernel, std::string_view kind, std::chrono::nanoseconds began,
           std::chrono::nanoseconds took) {
    const auto name = escaped(kernel.kernel + " " + kernel.architecture);
    text_ += "<span class=\"bar " + std::string(kind) + "\" style=\"left:" + percent(began) +
             "%;width:" + percent(took) + "%\" title=\"" + name + ", " + std::string(kind) + ", " +
             milliseconds_text(took) + " ms\">" + name + "</span>";
  }

  void table() {
    text_ +=
        "<table><tr><th>kernel<th>arch<th>key<th>from<th>queue ms<th>verify ms<th>compile ms"
        "<th>load ms<th>bytes<th>registers<th>spills</tr>\n";
    for (const auto& kernel : report_.kernels) {
      text_ += "<tr><td>" + escaped(kernel.kernel) + "<td>" + escaped(kernel.architecture) +
               "<td>" + (kernel.key == cache::Digest{} ? std::string() : kernel.key.hex()) +
               "<td>" + std::string(to_string(kernel.origin)) + (kernel.retried ? ", retried" : "");
      for (const auto time : {kernel.queue, kernel.verify, kernel.compile, kernel.load})
        text_ += "<td>" + milliseconds_text(time);
      for (const std::size_t count :
           {kernel.cubin_bytes, static_cast<std::size_t>(kernel.usage.registers),
            static_cast<std::size_t>(kernel.usage.spill_store_bytes)})
        text_ += "<td>" + std::to_string(count);
      text_ += "</tr>\n";
      std::string more = kernel.log;
      if (!kernel.status)
        more = kernel.status.error().message() + "\n" + std::string(kernel.status.error().detail());
      if (!more.empty())
        text_ += "<tr><td class=f colspan=11><pre>" + escaped(more) + "</pre></tr>\n";
    }
    text_ += "</table>\n";
  }

  const WarmupReport& report_;
  std::string text_;
  std::chrono::nanoseconds whole_{};
  unsigned lanes_ = 0;
};

}  // namespace

std::string to_html(const WarmupReport& report) {
  return Page(report).make();
}

}  // namespace kiln
