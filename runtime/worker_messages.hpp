// What goes between a Runtime and its worker processes: a compile job one way, its outcome back,
// each as one frame. A job begins with the version of Kiln: the program behind a worker's command
// may have been replaced since this process started, and would compile in its own way what is
// stored under this one's key.
//
// Threads: pure functions and values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kiln/artifact.hpp"
#include "kiln/error.hpp"
#include "runtime/compiler.hpp"
#include "runtime/program.hpp"

namespace kiln {

struct WorkerJob {
  std::string nvrtc{};  ///< path of the library
  ToolchainId toolchain{};
  std::string architecture{};
  cache::Digest key{};
  Program program{};  ///< what Compiler::compile() reads of it
  bool share_header = false;
};

struct WorkerAnswer {
  std::optional<Artifact> artifact{};
  Status status{};
  bool passing = false;
  std::uint64_t peak_bytes = 0;
  bool header_shared = false;
  std::string header_trouble{};
};

std::string encode(const WorkerJob& job);
std::string encode(const WorkerAnswer& answer);
/// Whether a job came from a Kiln of another version, and is not to be read.
bool is_of_another_kiln(std::string_view message);
/// Empty for what encode() did not write.
std::optional<WorkerJob> decode_job(std::string_view message);
std::optional<WorkerAnswer> decode_answer(std::string_view message);

/// A frame is the number of its bytes, in eight, and the bytes.
inline constexpr std::size_t kFrameHead = 8;
std::string framed(std::string_view message);
/// The number in the head of a frame; more than kMostFrameBytes is no frame of ours.
std::uint64_t frame_size(std::string_view head);
inline constexpr std::uint64_t kMostFrameBytes = std::uint64_t{1} << 31;

/// The exit code of a worker that can make no thread.
inline constexpr int kNoThreadExit = 71;
/// Of one that got a job of another Kiln.
inline constexpr int kOtherKilnExit = 72;

}  // namespace kiln
