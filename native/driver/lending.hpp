// Arrays that other libraries have borrowed, until they give them back.
//
// Always true: the borrower's stream waits for our work before the borrow begins, and for what other borrowers have
// enqueued. While it lives, the memory is there, and each use here comes after what is on that stream by then; so do
// the uses after its end, and the freeing, if somebody keeps the stream. Where nobody does, its owner may have
// destroyed it just before: NVIDIA's driver ends the process over such a handle, so it is not asked about then. Whoever
// looks at the hazards of lent bytes asks `admit` before. A borrow may be given back on any thread, without the GIL or
// a context: it is only noted there. All else is guarded by the GIL.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "relays.hpp"

namespace aiocuda::driver {

class Borrow {
 public:
  struct Bytes {
    dataflow::BufferRef buffer;
    dataflow::Span span;                 // all of them
    std::vector<dataflow::Span> pieces;  // without what is between
    std::int32_t device;                 // whose stream the borrower's is
    bool writes;                         // the borrower may write them
  };
  // `theirs`: null where the borrower wants no order. `kept`: what goes with the borrow.
  // `held`: keeps the stream, if we can. `lasts`: somebody keeps it beyond the end of the borrow.
  Borrow(Bytes bytes, CUstream theirs, unsigned long long number, std::shared_ptr<void> kept,
         std::shared_ptr<void> held, bool lasts)
      : bytes_(std::move(bytes)),
        theirs_(theirs),
        number_(number),
        kept_(std::move(kept)),
        held_(std::move(held)),
        lasts_(lasts) {}

 private:
  friend class Lending;
  Bytes bytes_;
  CUstream theirs_;
  unsigned long long number_;  // of the stream
  std::shared_ptr<void> kept_, held_;
  const bool lasts_;
  Borrow* next_ = nullptr;  // that was given back before
};

// Streams of ours that come after all that a framework's stream holds, of which nothing more has come since.
using Followed = std::vector<std::pair<StreamIndex, CUstream>>;

// While a function of `call` runs, its stream is ordered after all that it is said to use.
class InCall {
 public:
  // `followed_before`: by functions of the same execution; null: it is a capture.
  InCall(StreamIndex of, std::int32_t on, Followed* followed_before)
      : stream(of),
        device(on),
        is_captured(!followed_before),
        followed(followed_before),
        around_(std::exchange(innermost(), this)) {}
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;
  ~InCall() { innermost() = around_; }

  // The one that runs on this thread; null: none does.
  static const InCall* current() { return innermost(); }

  const StreamIndex stream;
  const std::int32_t device;
  const bool is_captured;
  Followed* const followed;

 private:
  static const InCall*& innermost() {
    thread_local const InCall* of_this = nullptr;
    return of_this;
  }
  const InCall* const around_;
};

class Lending {
 public:
  Lending(Devices& devices, Streams& streams, dataflow::Timeline& timeline, Relays& relays)
      : devices_(devices), streams_(streams), timeline_(timeline), relays_(relays) {}
  Lending(const Lending&) = delete;
  Lending& operator=(const Lending&) = delete;
  ~Lending();

  // The borrower must give it back. `lasts`: its stream is there for good, or `kept` keeps it. Throws Refusal, also
  // where somebody captures the stream.
  Borrow* lend(Borrow::Bytes bytes, CUstream theirs, std::shared_ptr<void> kept, bool lasts);
  // Orders a stream after the work on bytes that somebody would read, or write, and after what borrowers of them do.
  // Throws Refusal.
  void order(CUstream theirs, const Borrow::Bytes& bytes);
  // On any thread. The borrower is done with it, except for what is on his stream.
  void give_back(Borrow* borrow) noexcept;
  // Before bytes are used, and before anybody asks what uses them: what borrowers do with them is in the hazards then.
  // Throws Refusal.
  void admit(const dataflow::Buffer& buffer, dataflow::Span span, bool writes);
  // After bytes were used: what borrowers enqueue from here on comes behind that. Throws Refusal.
  void tell(const dataflow::Buffer& buffer, dataflow::Span span, bool writes);
  // Lets go of what was given back. A stream that is captured now is asked about later. One that was destroyed, or
  // whose context is broken, has nothing to be asked about.
  void take_back() {
    if (!gone_.empty() || has_ends()) [[unlikely]]
      drop_given_back();
  }

 private:
  bool has_ends() const { return given_back_.load(std::memory_order_relaxed) || !ended_.empty(); }
  void drop_given_back();
  void note(Borrow& borrow);
  // Throws Refusal where somebody captures it.
  bool is_same_stream(const Borrow& borrow) const;
  void note_ends();

  Devices& devices_;
  Streams& streams_;
  dataflow::Timeline& timeline_;
  Relays& relays_;
  std::unordered_map<const dataflow::Buffer*, std::vector<Borrow*>> live_;  // without those that want no order
  std::vector<Borrow*> ended_;                 // given back; their streams could not be asked yet
  std::vector<std::unique_ptr<Borrow>> gone_;  // to be let go of outside of walks
  std::atomic<Borrow*> given_back_{nullptr};
};

}  // namespace aiocuda::driver
