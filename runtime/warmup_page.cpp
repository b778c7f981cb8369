// The report of a warmup as one page: a timeline by thread, and a table. Nothing in it is fetched
// from anywhere, and no script runs.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "kiln/warmup.hpp"
#include "runtime/decimal_text.hpp"
#include "runtime/message_text.hpp"

namespace kiln {
namespace {

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Kiln warmup</title><style>
:root{color-scheme:light dark;--text:#222;--faint:#666;--page:#fff;--lane:#f0f0f0;--rule:#ddd;--bad:#b00020}
@media(prefers-color-scheme:dark){:root{--text:#ddd;--faint:#999;--page:#161616;--lane:#262626;
--rule:#383838;--bad:#ff8a8a}}
body{font:14px/1.45 system-ui,sans-serif;margin:24px;color:var(--text);background:var(--page)}
h1{font-size:20px;margin:0 0 4px}h2{font-size:16px;margin:20px 0 4px}p{margin:4px 0}
.lane{display:flex;margin:2px 0}.lane>b{flex:0 0 80px;font-weight:400;color:var(--faint)}
.lane>div{flex:1;position:relative;height:22px;background:var(--lane);overflow:hidden}
.bar{position:absolute;top:2px;height:18px;min-width:2px;box-shadow:inset -1px 0 var(--page);overflow:hidden;
white-space:nowrap;font-size:11px;line-height:18px;color:#fff;text-indent:3px}
.compiled{background:#b8500f}.hit{background:#2f7d4f}.remote{background:#12757f}.waited{background:#3b6ea8}
.failed{background:#b00020}.load{background:#7a5ea8}
.axis{margin-left:80px;display:flex;justify-content:space-between;color:var(--faint);font-size:12px}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%}
td,th{padding:3px 8px;border-bottom:1px solid var(--rule);text-align:right;vertical-align:top;white-space:nowrap}
td:nth-child(-n+4),th:nth-child(-n+4){text-align:left}
td:first-child{white-space:normal;overflow-wrap:anywhere;min-width:260px}
pre,summary{margin:0;white-space:pre-wrap;overflow-wrap:anywhere;font-size:12px}
summary{color:var(--faint)}.bad{color:var(--bad)}li{margin:6px 0}
.key i{display:inline-block;width:12px;height:12px;margin:0 4px 0 0;vertical-align:-1px}
.key span{margin-right:14px}
</style></head><body>
)";

// More than these are folded, so that the timeline stays in sight.
constexpr std::ptrdiff_t kFailuresShown = 10;

// The kinds of bars, each with its colour above.
constexpr std::string_view kKinds[] = {"compiled", "hit", "remote", "waited", "failed", "load"};

std::string_view kind_of(Origin origin) {
  switch (origin) {
    case Origin::memory:
    case Origin::disk:
    case Origin::lower_tier:
      return "hit";
    default:
      return to_string(origin);
  }
}

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
        // What no document may hold, such as the colours in a compiler's log.
        out +=
            (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f ? '?' : c;
    }
  }
  return out;
}

std::string milliseconds_text(std::chrono::nanoseconds time) {
  return decimal_text(static_cast<double>(time.count()) / 1e6, 1);
}

// As long as a person reads it: "12.3 ms", "4.70 s".
std::string time_text(std::chrono::nanoseconds time) {
  return time < std::chrono::seconds(1)
             ? milliseconds_text(time) + " ms"
             : decimal_text(static_cast<double>(time.count()) / 1e9, 2) + " s";
}

std::string size_text(std::size_t bytes) {
  constexpr double kKibibyte = 1024;
  const double kibibytes = static_cast<double>(bytes) / kKibibyte;
  return kibibytes < kKibibyte ? decimal_text(kibibytes, 1) + " KiB"
                               : decimal_text(kibibytes / kKibibyte, 1) + " MiB";
}

std::string key_text(const cache::Digest& key) {
  return key == cache::Digest{} ? std::string() : key.hex();
}

class Page {
 public:
  explicit Page(const WarmupReport& report) : report_(report), text_(kHead) {
    whole_ = report.time;
    for (const auto& kernel : report.kernels) {
      whole_ = std::max({whole_, kernel.began + worked(kernel), kernel.load_began + kernel.load});
      lanes_ = std::max(lanes_, kernel.lane);
    }
    if (whole_.count() == 0) whole_ = std::chrono::nanoseconds(1);
  }

  std::string make() {
    head();
    failures();
    timeline();
    table();
    text_ += "</body></html>\n";
    return std::move(text_);
  }

 private:
  static std::chrono::nanoseconds worked(const KernelReport& kernel) {
    return kernel.compile.count() != 0 ? kernel.compile : kernel.verify;
  }

  void head() {
    text_ += "<h1>Warmup of " + counted(report_.requested, "kernel") + "</h1><p>" +
             counted(report_.hits, "hit") + ", " + std::to_string(report_.compiled) +
             " compiled, " + std::to_string(report_.waited) + " waited for, " +
             std::to_string(report_.failed) + " failed, in " + time_text(report_.time) + "; " +
             size_text(report_.cubin_bytes) + " of code</p>\n";
    if (!report_.stopped.empty())
      text_ += "<p class=bad>stopped early: " + escaped(report_.stopped) + "</p>\n";
    for (const auto& line : {report_.jobs_reason, report_.toolchain})
      if (!line.empty()) text_ += "<p>" + escaped(line) + "</p>\n";
  }

  // First, so that nobody has to look for them among hundreds.
  void failures() {
    const auto count = std::count_if(report_.kernels.begin(), report_.kernels.end(),
                                     [](const auto& kernel) { return !kernel.status; });
    if (count == 0) return;
    text_ += std::string("<h2>Failed</h2><details") + (count <= kFailuresShown ? " open" : "") +
             "><summary>" + counted(static_cast<std::size_t>(count), "kernel") + "</summary><ul>\n";
    for (const auto& kernel : report_.kernels) {
      if (kernel.status) continue;
      const auto& error = kernel.status.error();
      text_ += "<li><pre class=bad>" + escaped(error.message()) + "</pre>";
      if (!error.detail().empty())
        text_ +=
            "<details><summary>log</summary><pre>" + escaped(error.detail()) + "</pre></details>";
      text_ += "</li>\n";
    }
    text_ += "</ul></details>\n";
  }

  void timeline() {
    if (report_.kernels.empty()) return;
    text_ += "<h2>Timeline</h2><p class=key>";
    for (const auto kind : kKinds)
      text_ += "<span><i class=" + std::string(kind) + "></i>" + std::string(kind) + "</span>";
    text_ += "</p>\n";
    for (unsigned lane = 1; lane <= lanes_; ++lane) {
      text_ += "<div class=lane><b>thread " + std::to_string(lane) + "</b><div>";
      for (const auto& kernel : report_.kernels)
        if (kernel.lane == lane) bar(kernel, kind_of(kernel.origin), kernel.began, worked(kernel));
      text_ += "</div></div>\n";
    }
    if (std::any_of(report_.kernels.begin(), report_.kernels.end(),
                    [](const auto& kernel) { return kernel.load.count() != 0; })) {
      text_ += "<div class=lane><b>load</b><div>";
      for (const auto& kernel : report_.kernels)
        if (kernel.load.count() != 0) bar(kernel, "load", kernel.load_began, kernel.load);
      text_ += "</div></div>\n";
    }
    text_ += "<div class=axis>";
    for (int quarter = 0; quarter <= 4; ++quarter)
      text_ += "<span>" + (quarter == 0 ? "0" : time_text(whole_ * quarter / 4)) + "</span>";
    text_ += "</div>\n";
  }

  std::string percent(std::chrono::nanoseconds time) const {
    return decimal_text(
        100.0 * static_cast<double>(time.count()) / static_cast<double>(whole_.count()), 3);
  }

  void bar(const KernelReport& kernel, std::string_view kind, std::chrono::nanoseconds began,
           std::chrono::nanoseconds took) {
    const auto name = escaped(kernel.kernel + " " + kernel.architecture);
    text_ += "<span class=\"bar " + std::string(kind) + "\" style=\"left:" + percent(began) +
             "%;width:" + percent(took) + "%\" title=\"" + name + ", " + std::string(kind) + ", " +
             time_text(took) + "\">" + name + "</span>";
  }

  void table() {
    if (report_.kernels.empty()) return;
    text_ +=
        "<h2>Kernels</h2><div class=wide><table><tr><th>kernel<th>arch<th>key<th>from<th>queue ms"
        "<th>verify ms<th>compile ms<th>load ms<th>bytes<th>registers<th>spilled bytes</tr>\n";
    for (const auto& kernel : report_.kernels) {
      const auto key = key_text(kernel.key);
      text_ += "<tr><td>" + escaped(kernel.kernel) +
               (kernel.group.empty() ? std::string() : " (" + escaped(kernel.group) + ")") +
               (kernel.log.empty() ? std::string()
                                   : "<details><summary>warnings</summary><pre>" +
                                         escaped(kernel.log) + "</pre></details>") +
               "<td>" + escaped(kernel.architecture) + "<td title=\"" + key + "\">" +
               key.substr(0, 12) + (kernel.status ? "<td>" : "<td class=bad>") +
               std::string(to_string(kernel.origin)) + (kernel.retried ? ", retried" : "");
      for (const auto time : {kernel.queue, kernel.verify, kernel.compile, kernel.load})
        text_ += "<td>" + (time.count() != 0 ? milliseconds_text(time) : std::string());
      for (const std::size_t count :
           {kernel.cubin_bytes, static_cast<std::size_t>(kernel.usage.registers),
            static_cast<std::size_t>(kernel.usage.spill_store_bytes)})
        text_ += "<td>" + (count != 0 ? std::to_string(count) : std::string());
      text_ += "</tr>\n";
    }
    text_ += "</table></div>\n";
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
