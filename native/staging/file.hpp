// A file as one end of copies: threads read it straight into page-locked memory, and write it from there. Knows neither
// CUDA nor Python.
//
// Always true: the thread that carries the first part opens the file, and the one with the last part closes it. So the
// submitting thread never waits for a disk. The first failure is kept. From then on no byte is moved.
//
// A file may be moved directly in place of that. A thread opens it before any part is submitted, and does no more: what
// a file had goes when the device comes to the first part. Then a library moves the parts. The file is closed when
// nobody knows it any more.
#pragma once
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "direct.hpp"

namespace aiocuda::staging {

class File {
 public:
  enum class Use : std::uint8_t {
    read,
    read_some,  // as many bytes as there are
    replace,    // made, or emptied
    update      // made, or kept as far as nothing is written
  };
  struct Failure {
    const char* step;     // of what failed: "open", "read", "write" or "close"
    int error;            // the system's; 0: the file ends too early; from 5000 on: the library's
    std::uint64_t bytes;  // moved so far; if the file ends too early, those that it has of what was asked for
  };

  // `size_bytes`: all that copies will carry, together. `head`: what a file that is replaced begins with. `directly`:
  // it is to be opened by `open_directly` first.
  File(std::string path, Use use, std::uint64_t offset, std::uint64_t size_bytes, std::string head = {},
       bool directly = false)
      : path_(std::move(path)),
        use_(use),
        offset_(offset),
        size_bytes_(size_bytes),
        head_(std::move(head)),
        needs_opening_(directly),
        left_(share(size_bytes)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  const std::string& path() const { return path_; }
  std::uint64_t offset() const { return offset_; }
  // For who holds it alone.
  bool is_open() const { return descriptor_ >= 0 || direct_; }
  bool is_replaced() const { return use_ == Use::replace; }
  std::uint64_t moved_bytes() const { return moved_.load(std::memory_order_acquire); }
  // Of a file that is moved directly: only when the device has passed all parts that were submitted.
  std::optional<Failure> failure() const {
    const std::lock_guard lock(mutex_);
    return failure_ || !direct_ ? failure_ : failure_of(*direct_);
  }

  // No part may be submitted yet.
  bool needs_opening() const { return needs_opening_.load(std::memory_order_acquire); }
  // Nobody opens it before.
  void leave_to_threads() { needs_opening_.store(false, std::memory_order_release); }
  // Opens it to be moved by a library, where there is one, and where that is possible. Else threads carry its parts.
  void open_directly(std::shared_ptr<DirectWay> way) {
    const std::lock_guard lock(mutex_);
    if (!needs_opening()) return;
    if (way) {
      open(false);
      if (!failure_) direct_ = DirectFile::of(std::move(way), descriptor_, reads());
      if (!failure_ && !direct_) close();
    }
    leave_to_threads();
  }
  bool is_direct() const { return direct_ != nullptr; }
  // On the stream, before each part of a file that is replaced.
  void begin_directly() {
    const std::lock_guard lock(mutex_);
    begin();
  }
  // Puts a part on a device's stream.
  void move_directly(std::uint64_t begin, std::uint64_t size_bytes, std::uint64_t address, void* stream) {
    DirectPart& part = add_direct(offset_ + begin, size_bytes);
    direct_->move(part, address, stream);  // without the lock, which a function of the stream's takes
  }

  // Moves the bytes from `begin` to `end`, counted from the offset. May be called by several threads at once.
  void read(std::uint64_t begin, std::uint64_t end, std::byte* packed) { carry(begin, end, packed, "read", ::pread); }
  void write(std::uint64_t begin, std::uint64_t end, const std::byte* packed) {
    carry(begin, end, packed, "write", ::pwrite);
  }

 private:
  DirectPart& add_direct(std::uint64_t offset, std::uint64_t size_bytes) {
    const std::lock_guard lock(mutex_);
    return direct_->add(offset, size_bytes);
  }
  bool reads() const { return use_ == Use::read || use_ == Use::read_some; }
  std::optional<Failure> failure_of(const DirectFile& file) const {
    std::uint64_t moved = 0;
    for (const DirectPart& part : file.parts()) {
      if (part.moved_bytes == static_cast<ssize_t>(part.size_bytes)) {
        moved += part.size_bytes;
        continue;
      }
      const char* const step = reads() ? "read" : "write";
      // Which error of the system's it was, the library does not say.
      if (part.moved_bytes == -1) return Failure{step, EIO, moved};
      if (part.moved_bytes < 0) return Failure{step, static_cast<int>(-part.moved_bytes), moved};
      // The file has been shortened since it was opened, or its disk is full.
      const auto some = static_cast<std::uint64_t>(part.moved_bytes);
      if (!reads()) return Failure{step, EIO, moved + some};
      return Failure{step, 0, static_cast<std::uint64_t>(part.offset) - offset_ + some};
    }
    return std::nullopt;
  }

  // A copy of no bytes has one part, which opens and closes the file.
  static std::int64_t share(std::uint64_t size_bytes) {
    return static_cast<std::int64_t>(std::max<std::uint64_t>(size_bytes, 1));
  }

  template <class Byte, class Call>
  void carry(std::uint64_t begin, std::uint64_t end, Byte* packed, const char* step, Call call) {
    if (enter()) move(begin, end, packed, step, call);
    leave(share(end - begin));
  }

  template <class Byte, class Call>
  void move(std::uint64_t begin, std::uint64_t end, Byte* packed, const char* step, Call call) {
    while (begin < end && !has_failed_.load(std::memory_order_acquire)) {
      const ssize_t moved = call(descriptor_, packed, end - begin, static_cast<off_t>(offset_ + begin));
      if (moved < 0) {
        if (errno == EINTR) continue;
        return fail(step, errno, moved_bytes());
      }
      if (moved == 0) {
        if (use_ == Use::read_some) return;
        // A file that ends here has been shortened since it was opened, or does not tell its size.
        return use_ == Use::read ? fail(step, 0, begin) : fail(step, EIO, moved_bytes());
      }
      moved_.fetch_add(static_cast<std::uint64_t>(moved), std::memory_order_acq_rel);
      begin += static_cast<std::uint64_t>(moved);
      packed += moved;
    }
  }

  bool enter() {
    const std::lock_guard lock(mutex_);
    ++carriers_;
    if (direct_) begin();  // an array of the host's memory, beside those on devices
    if (descriptor_ < 0 && !failure_) open(true);
    return !failure_;
  }
  void leave(std::int64_t share_bytes) {
    const std::lock_guard lock(mutex_);
    left_ -= share_bytes;
    if (--carriers_ == 0 && left_ <= 0) close();
  }

  // `begins`: what the file had goes now, and the head is written.
  void open(bool begins) {
    struct stat about{};
    // It is asked about first: opening a pipe would wake its other end.
    if (::stat(path_.c_str(), &about) == 0 && refuses(about)) return;
    // If a device turns out to need another way of copying, parts are carried once more.
    const bool is_first = begins && !std::exchange(was_begun_, true);
    const int flags = reads() ? O_RDONLY : O_WRONLY | O_CREAT | (is_first && use_ == Use::replace ? O_TRUNC : 0);
    // If the path has just become a pipe, opening it must not block.
    descriptor_ = open_with(flags | O_NONBLOCK);
    // Somebody has a lease of the file, and is asked now to give it back.
    if (descriptor_ < 0 && errno == EAGAIN && S_ISREG(about.st_mode)) descriptor_ = open_with(flags);
    if (descriptor_ < 0 || ::fstat(descriptor_, &about) != 0) return keep("open", errno, 0);
    if (refuses(about) || (is_first && !has_head())) return;
    // Files of the system's say that they have no bytes, and have some.
    if (use_ != Use::read || !S_ISREG(about.st_mode) || about.st_size == 0) return;
    const auto there = static_cast<std::uint64_t>(about.st_size);
    if (there < offset_ || there - offset_ < size_bytes_) keep("read", 0, there - std::min(there, offset_));
  }
  void begin() {
    if (!is_replaced() || std::exchange(was_begun_, true) || failure_) return;
    if (::ftruncate(descriptor_, 0) != 0) return keep("write", errno, 0);
    has_head();
  }
  bool has_head() {
    for (std::size_t done = 0; done < head_.size();) {
      const ssize_t moved = ::pwrite(descriptor_, head_.data() + done, head_.size() - done, static_cast<off_t>(done));
      if (moved < 0 && errno == EINTR) continue;
      if (moved <= 0) {
        keep("write", moved < 0 ? errno : EIO, 0);
        return false;
      }
      done += static_cast<std::size_t>(moved);
    }
    return true;
  }
  int open_with(int flags) const {
    for (;;) {
      const int descriptor = ::open(path_.c_str(), flags | O_CLOEXEC | O_NOCTTY, 0666);
      if (descriptor >= 0 || errno != EINTR) return descriptor;
    }
  }
  // Refuses pipes and sockets, which have no offsets, and directories.
  bool refuses(const struct stat& about) {
    const int error = S_ISDIR(about.st_mode) ? EISDIR : S_ISFIFO(about.st_mode) || S_ISSOCK(about.st_mode) ? ESPIPE : 0;
    if (error) keep("open", error, 0);
    return error != 0;
  }

  // Some file systems tell only now that they could not write.
  void close() {
    const int descriptor = std::exchange(descriptor_, -1);
    if (descriptor >= 0 && ::close(descriptor) != 0 && errno != EINTR && !failure_) keep("close", errno, moved_bytes());
  }

  void fail(const char* step, int error, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    // Of several parts that a file is too short for, the first one says where it ends.
    if (!failure_ || (failure_->error == 0 && error == 0 && bytes < failure_->bytes)) keep(step, error, bytes);
  }
  void keep(const char* step, int error, std::uint64_t bytes) {
    failure_ = Failure{step, error, bytes};
    has_failed_.store(true, std::memory_order_release);
  }

  const std::string path_;
  const Use use_;
  const std::uint64_t offset_, size_bytes_;
  const std::string head_;
  std::atomic<std::uint64_t> moved_{0};
  std::atomic<bool> has_failed_{false};
  std::atomic<bool> needs_opening_;
  mutable std::mutex mutex_;  // guards what follows; the descriptor stays while parts are carried
  bool was_begun_ = false;
  int carriers_ = 0;   // threads that carry a part now
  std::int64_t left_;  // bytes that nobody has carried yet
  int descriptor_ = -1;
  std::unique_ptr<DirectFile> direct_;  // set before any part is submitted, and then no more
  std::optional<Failure> failure_;
};

}  // namespace aiocuda::staging
