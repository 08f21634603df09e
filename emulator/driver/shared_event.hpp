// The part of an event that processes share: its records, by number, and which of them have passed.
// Always: a wait for a record ends when it has passed, or its process has ended; never before. A record that so many
// came after that its place was taken counts as passed with the one that took it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "memory/shared_file.hpp"
#include "process_identity.hpp"

namespace aiocuda::emulator {

class SharedEvent {
 public:
  // Null where the system has no memory to share.
  static std::shared_ptr<SharedEvent> make();
  // Of the descriptor of one that was made, whose ownership it takes; null where it is something else.
  static std::shared_ptr<SharedEvent> open(memory::Descriptor descriptor);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  int descriptor() const noexcept { return descriptor_.number(); }

  // Of the last record of any process; 0 while there is none.
  std::uint64_t last_record() const noexcept;
  // This process records it once more; answers the record's number.
  std::uint64_t begin_record() noexcept;
  void pass(std::uint64_t record) noexcept;
  bool passed(std::uint64_t record) const noexcept;
  void wait(std::uint64_t record, const std::function<bool()>& gives_up) const;

 private:
  struct Page;
  SharedEvent(memory::Descriptor descriptor, Page& page) : descriptor_(std::move(descriptor)), page_(page) {}
  static std::shared_ptr<SharedEvent> map(memory::Descriptor descriptor);

  const memory::Descriptor descriptor_;
  Page& page_;
};

// A record of this process that is under way. It passes at the latest when nobody can pass it any more.
class SharedRecord {
 public:
  explicit SharedRecord(std::shared_ptr<SharedEvent> event)
      : event_(std::move(event)), number_(event_->begin_record()) {}
  ~SharedRecord() { pass(); }
  SharedRecord(const SharedRecord&) = delete;
  SharedRecord& operator=(const SharedRecord&) = delete;
  void pass() const noexcept { event_->pass(number_); }
  std::uint64_t number() const noexcept { return number_; }

 private:
  const std::shared_ptr<SharedEvent> event_;
  const std::uint64_t number_;
};

}  // namespace aiocuda::emulator
