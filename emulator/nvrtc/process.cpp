// See process.hpp.
#include "process.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>

#include "settings.hpp"

extern char** environ;  // what the child inherits

namespace aiocuda::emulator::nvrtc {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }

  int get() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

class FileActions {
 public:
  FileActions() { ::posix_spawn_file_actions_init(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  ~FileActions() { ::posix_spawn_file_actions_destroy(&actions_); }

  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

[[noreturn]] void fail(const char* what, const std::filesystem::path& path) {
  throw std::filesystem::filesystem_error(what, path, std::error_code(errno, std::generic_category()));
}

int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return -1;  // someone else reaped it (SIGCHLD ignored): judge by what it wrote
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& command) {
  ProcessResult result;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    result.output = std::string("pipe: ") + std::strerror(errno);
    return result;
  }
  const Descriptor reader(ends[0]);
  Descriptor writer(ends[1]);

  std::vector<char*> arguments;
  arguments.reserve(command.size());
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const Settings settings = read_settings();
  // Messages in English; the directories where a compiler looks for its assembler and its linker.
  std::vector<std::string> set = {"LC_ALL=C", "PATH=" + settings.path};
  if (!settings.zig_cache.empty()) set.push_back("ZIG_GLOBAL_CACHE_DIR=" + settings.zig_cache);
  std::vector<char*> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const bool is_ours = std::ranges::any_of(
        set, [&](const std::string& each) { return text.starts_with(each.substr(0, each.find('=') + 1)); });
    if (!is_ours && !text.starts_with("LANGUAGE=")) environment.push_back(*variable);
  }
  for (std::string& each : set) environment.push_back(each.data());
  environment.push_back(nullptr);

  FileActions actions;
  ::posix_spawn_file_actions_addopen(actions.get(), STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(actions.get(), writer.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(actions.get(), writer.get(), STDERR_FILENO);
  pid_t child = 0;
  const int error =
      ::posix_spawn(&child, command[0].c_str(), actions.get(), nullptr, arguments.data(), environment.data());
  writer.close();
  if (error != 0) {
    result.output = command[0] + ": " + std::strerror(error);
    return result;
  }
  result.started = true;
  char buffer[16384];
  for (;;) {
    const ssize_t size = ::read(reader.get(), buffer, sizeof buffer);
    if (size > 0) result.output.append(buffer, static_cast<std::size_t>(size));
    if (size == 0 || (size < 0 && errno != EINTR)) break;
  }
  result.exit_status = wait_for(child);
  return result;
}

TemporaryDirectory::TemporaryDirectory(const std::string& parent) {
  std::string pattern = parent + "/aiocuda-nvrtc-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) fail("cannot make a temporary directory", parent);
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;  // nothing to do about a directory that will not go
  std::filesystem::remove_all(path_, ignored);
}

bool read_all(int file, std::string& content) {
  content.clear();
  char buffer[65536];
  for (;;) {
    const ssize_t size = ::read(file, buffer, sizeof buffer);
    if (size > 0) content.append(buffer, static_cast<std::size_t>(size));
    if (size == 0) return true;
    if (size < 0 && errno != EINTR) return false;
  }
}

bool write_all(int file, std::string_view content) {
  while (!content.empty()) {
    const ssize_t size = ::write(file, content.data(), content.size());
    if (size < 0 && errno != EINTR) return false;
    if (size > 0) content.remove_prefix(static_cast<std::size_t>(size));
  }
  return true;
}

bool read_file(const std::filesystem::path& path, std::string& content) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return file.get() >= 0 && read_all(file.get(), content);
}

void write_file(const std::filesystem::path& path, std::string_view content) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file.get() < 0 || !write_all(file.get(), content)) fail("cannot write", path);
}

}  // namespace aiocuda::emulator::nvrtc
