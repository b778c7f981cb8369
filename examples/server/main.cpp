// A server that listens at once, is ready when its kernels are, and compiles nothing after that.
//
//   GET /healthz                      it runs
//   GET /readyz                       503 with the progress until the group "first" can be launched
//   GET /metrics                      the runtime's counters, for Prometheus
//   GET /scale?factor=3&values=1,2    runs a kernel: [3,6]
//
//   kiln_server [PORT]     8080; 0 takes a free one and says which. The cache is KILN_CACHE_DIR.
//                          Where there is no GPU the kernels are compiled for KILN_ARCH, or for
//                          sm_90a.
//
// SIGTERM ends it within two seconds, and the next start finds what was compiled. kubernetes.yaml
// shows it with a cache that is filled ahead.
#include <signal.h>

#include <httplib.h>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <kiln/runtime.hpp>
#include <kiln/spdlog.hpp>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "examples/engine.hpp"

namespace {

using Json = nlohmann::json;

constexpr std::string_view kSource = R"(
#include "jit/key.cuh"

extern "C" __global__ void entry(float* values, int count) {
  const int i = blockIdx.x * 128 + threadIdx.x;
  if (i < count) values[i] *= key::factor;
}
)";

struct Key {
  int factor = 1;
  static constexpr auto fields() { return std::tuple{kiln::KeyField{"factor", &Key::factor}}; }
};

// Those that nearly every request needs come first.
constexpr int kFirstFactors = 2, kFactors = 8;

struct Scaling {
  kiln::Runtime runtime;
  std::vector<kiln::KernelId> kernels{};  // by factor, from 1

  static kiln::Result<Scaling> open() {
    KILN_TRY(auto options, kiln::options_from(kiln::process_environment()));
    options.log = kiln::spdlog_stderr_sink(kiln::LogLevel::warning);
    KILN_TRY(auto runtime, kiln::Runtime::open(std::move(options)));
    KILN_TRY(runtime.add_source("server/scale.cu", kSource));
    Scaling scaling{std::move(runtime)};
    for (int factor = 1; factor <= kFactors; ++factor) {
      KILN_TRY(const auto id, scaling.runtime.add({.name = "scale",
                                                   .source = "server/scale.cu",
                                                   .key = kiln::key_values(Key{factor})}));
      scaling.kernels.push_back(id);
    }
    return scaling;
  }

  kiln::Result<std::vector<float>> scale(int factor, const std::vector<float>& values) {
    if (factor < 1 || factor > kFactors)
      return kiln::Error(kiln::ErrorCode::invalid_argument, "factor is " + std::to_string(factor) +
                                                                "; it goes from 1 to " +
                                                                std::to_string(kFactors));
    // Typed: no_device where there is none.
    KILN_TRY(const auto device, runtime.device());
    static_cast<void>(device);
    thread_local const bool current = (engine::use_first_device(), true);
    static_cast<void>(current);
    KILN_TRY(const auto kernel, runtime.get(kernels[static_cast<std::size_t>(factor) - 1]));
    engine::DeviceArray<float> on_device(values);
    const kiln::LaunchShape shape{
        .grid_blocks = {static_cast<unsigned>((values.size() + 127) / 128)},
        .block_threads = {128}};
    KILN_TRY(auto launch, runtime.launches().prepare(kernel, shape, on_device.get(),
                                                     static_cast<int>(values.size())));
    KILN_TRY(launch.launch(nullptr));
    return on_device.download();
  }
};

// What the warmup last said, for the probes.
class Progress {
 public:
  void note(const kiln::Progress& progress) {
    const std::lock_guard lock(mutex_);
    body_ = {{"done", progress.done},
             {"requested", progress.requested},
             {"compiling", progress.compiling}};
    if (progress.left) body_["left_ms"] = progress.left->count();
  }
  void failed(const std::string& message) {
    std::fprintf(stderr, "not ready: %s\n", message.c_str());
    const std::lock_guard lock(mutex_);
    body_["error"] = message;
  }
  Json body() const {
    const std::lock_guard lock(mutex_);
    return body_;
  }

 private:
  mutable std::mutex mutex_;
  Json body_ = Json::object();
};

void warm_up(Scaling& scaling, Progress& progress, const std::stop_token& stop) {
  kiln::WarmupOptions options{
      .groups = {{"first", {scaling.kernels.begin(), scaling.kernels.begin() + kFirstFactors}}},
      .cancel = stop,
      .progress = [&](const kiln::Progress& now) { progress.note(now); }};
  if (scaling.runtime.device()) {
    engine::use_first_device();
  } else {
    options.architectures = {kiln::process_environment()("KILN_ARCH").value_or("sm_90a")};
  }
  const auto report = scaling.runtime.warmup(options);
  if (!report) return progress.failed(report.error().message());
  for (const auto& kernel : report->kernels)
    if (!kernel.status) return progress.failed(kernel.status.error().message());
  // From here on nothing is compiled, so that no request takes seconds.
  scaling.runtime.seal({.on_miss = kiln::OnMiss::refuse});
}

void answer(httplib::Response& response, int status, const Json& body) {
  response.status = status;
  response.set_content(body.dump() + "\n", "application/json");
}

// A caller may try again later, or elsewhere, after what is this machine's doing.
int http_status(kiln::ErrorCode code) {
  return code == kiln::ErrorCode::invalid_argument ? 400 : 503;
}

// Empty for a text that is no list of numbers.
template <class Number>
std::vector<Number> numbers_in(const std::string& text) {
  std::vector<Number> numbers;
  for (const char *at = text.data(), *const end = at + text.size(); at < end; ++at) {
    Number number{};
    const auto [rest, error] = std::from_chars(at, end, number);
    if (error != std::errc() || (rest != end && *rest != ',')) return {};
    numbers.push_back(number);
    at = rest;
  }
  return numbers;
}

void serve(httplib::Server& server, Scaling& scaling, const Progress& progress) {
  server.Get("/healthz", [](const auto&, auto& response) {
    answer(response, 200, {{"alive", true}});
  });
  server.Get("/readyz", [&](const auto&, auto& response) {
    const bool ready = scaling.runtime.ready_for("first");
    auto body = progress.body();
    body["ready"] = ready;
    answer(response, ready ? 200 : 503, body);
  });
  server.Get("/metrics", [&](const auto&, auto& response) {
    response.set_content(kiln::to_prometheus(scaling.runtime.counters()),
                         "text/plain; version=0.0.4");
  });
  server.Get("/scale", [&](const httplib::Request& request, auto& response) {
    const auto factors = numbers_in<int>(request.get_param_value("factor"));
    const auto values = numbers_in<float>(request.get_param_value("values"));
    if (factors.size() != 1 || values.empty())
      return answer(response, 400,
                    {{"code", "invalid_argument"},
                     {"message", "give a factor and values, such as /scale?factor=3&values=1,2"}});
    const auto scaled = scaling.scale(factors.front(), values);
    if (scaled) return answer(response, 200, *scaled);
    const auto& error = scaled.error();
    answer(response, http_status(error.code()),
           {{"code", to_string(error.code())}, {"message", error.message()}});
  });
}

kiln::Status run(int port) {
  // Before there are threads, which then leave these to the wait below.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  KILN_TRY(auto scaling, Scaling::open());
  Progress progress;
  httplib::Server server;
  // Two servers must not share a port unnoticed, and no idle connection may hold the end up.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  server.set_keep_alive_timeout(1);
  server.set_read_timeout(1);
  // Nothing here has a body, and one would be kept in memory whole.
  server.set_payload_max_length(0);
  serve(server, scaling, progress);
  const int bound = port == 0 ? server.bind_to_any_port("0.0.0.0")
                              : (server.bind_to_port("0.0.0.0", port) ? port : -1);
  if (bound < 0)
    return kiln::Error(kiln::ErrorCode::invalid_argument,
                       "port " + std::to_string(port) + " cannot be listened on; name another");
  std::printf("listening on port %d\n", bound);
  std::fflush(stdout);

  std::stop_source stop;
  std::thread warmup([&] { warm_up(scaling, progress, stop.get_token()); });
  const auto listener = std::async(std::launch::async, [&] { server.listen_after_bind(); });
  int signal = 0;
  sigwait(&signals, &signal);
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  stop.request_stop();
  server.stop();
  warmup.join();
  // No longer: who sends a request byte by byte keeps it open without end.
  listener.wait_until(patience);
  // Without destructors: NVRTC may take long to give back a compile that was left behind. What is
  // finished is in the cache.
  std::_Exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  int port = 8080;
  if (argc == 2) {
    const std::string_view text = argv[1];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
    if (error != std::errc() || end != text.data() + text.size() || port < 0 || port > 65535)
      argc = 3;
  }
  if (argc > 2) {
    std::fprintf(stderr, "usage: kiln_server [PORT]\n");
    return 2;
  }
  return engine::exit_code(run(port));
}
