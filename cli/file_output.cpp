#include "cli/file_output.hpp"

#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>

namespace kiln::cli {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

std::optional<Failure> write_output(const std::string& path, std::string_view bytes) {
  std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "wbe"));
  const bool written =
      file != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size();
  // The last bytes are written when it is closed.
  if (written && std::fclose(file.release()) == 0) return std::nullopt;
  return Failure{.exit = ExitCode::failed,
                 .code = "io_failed",
                 .message = "cannot write " + path + ": " + std::generic_category().message(errno) +
                            "; name another file with -o FILE"};
}

}  // namespace kiln::cli
