// Another process with a driver of its own, which does what other_process.cpp has under a name.
#pragma once
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <initializer_list>

namespace driver_test {

class OtherProcess {
 public:
  // Descriptor 3 there is the one given.
  explicit OtherProcess(const char* what, int descriptor = -1) {
    int to[2], from[2];
    REQUIRE(pipe(to) == 0);
    REQUIRE(pipe(from) == 0);
    id_ = fork();
    REQUIRE(id_ >= 0);
    if (id_ == 0) {
      dup2(to[0], STDIN_FILENO);
      dup2(from[1], STDOUT_FILENO);
      if (descriptor >= 0 && descriptor != 3) dup2(descriptor, 3);
      if (descriptor == 3) fcntl(3, F_SETFD, 0);
      for (const int each : {to[0], to[1], from[0], from[1]}) {
        if (each > 3 || (each == 3 && descriptor < 0)) close(each);
      }
      execl(OTHER_PROCESS_PATH, OTHER_PROCESS_PATH, what, static_cast<char*>(nullptr));
      _exit(255);
    }
    close(to[0]);
    close(from[1]);
    to_ = to[1];
    from_ = from[0];
  }
  ~OtherProcess() {
    if (id_ > 0) end();
  }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  template <typename Value>
  void give(const Value& value) {
    REQUIRE(write(to_, &value, sizeof value) == static_cast<ssize_t>(sizeof value));
  }
  template <typename Value>
  Value answer() {
    Value value{};
    REQUIRE(read(from_, &value, sizeof value) == static_cast<ssize_t>(sizeof value));
    return value;
  }
  bool has_answer() const {
    pollfd asked{from_, POLLIN, 0};
    return poll(&asked, 1, 0) == 1;
  }
  pid_t id() const { return id_; }
  int end() {
    close(to_);
    int status = -1;
    CHECK(waitpid(id_, &status, 0) == id_);
    close(from_);
    id_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t id_ = -1;
  int to_ = -1, from_ = -1;
};

}  // namespace driver_test
