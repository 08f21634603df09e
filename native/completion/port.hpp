// A port hands completions to one event loop: it has an eventfd, and the tokens that are due. It knows neither CUDA nor
// Python: a token is an opaque pointer, which the maker of the port owns.
//
// Always true: the eventfd is readable while there is something to take, and after `ring`. Each token that is put in
// comes out exactly once, from `take` or, after `close`, from `Orphans`.
#pragma once
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

namespace aiocuda::completion {

using Token = void*;

// In place of 0 or an error: the token waited for nothing, and everything else that is due comes first.
inline constexpr std::int32_t pause = -1;

// Tokens whose port is gone. They hold objects that only a thread with the right lock may drop.
class Orphans {
 public:
  void add(Token token) {
    std::lock_guard lock(mutex_);
    tokens_.push_back(token);
  }
  std::vector<Token> take() {
    std::lock_guard lock(mutex_);
    return std::exchange(tokens_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<Token> tokens_;
};

class Port {
 public:
  struct Due {
    Token token;
    std::int32_t result;  // 0, or the driver's error; or `pause`
  };

  explicit Port(Orphans& orphans) : orphans_(orphans), fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  }
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;
  ~Port() {
    close();
    ::close(fd_);
  }

  int fd() const { return fd_; }

  void put(Token token, std::int32_t result) {
    std::lock_guard lock(mutex_);
    if (closed_) return orphans_.add(token);
    due_.push_back({token, result});
    if (due_.size() == 1) signal();  // later ones find the eventfd readable: one wake for a batch
  }

  // `spare`: an empty list, whose memory is used for what is due next.
  std::vector<Due> take(std::vector<Due> spare = {}) {
    std::lock_guard lock(mutex_);
    std::uint64_t count;
    while (::read(fd_, &count, sizeof count) < 0 && errno == EINTR) {
    }
    return std::exchange(due_, std::move(spare));
  }

  // Makes the eventfd readable, though nothing may be due.
  void ring() { signal(); }

  void close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    for (const Due& due : std::exchange(due_, {})) orphans_.add(due.token);
  }

 private:
  void signal() {
    const std::uint64_t one = 1;
    while (::write(fd_, &one, sizeof one) < 0 && errno == EINTR) {
    }
  }

  Orphans& orphans_;  // outlives every port
  const int fd_;
  std::mutex mutex_;
  bool closed_ = false;
  std::vector<Due> due_;
};

}  // namespace aiocuda::completion
