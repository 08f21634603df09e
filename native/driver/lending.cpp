// Arrays that other libraries have borrowed: see lending.hpp.
#include "lending.hpp"

#include <algorithm>

#include "../dataflow/timeline.hpp"

namespace aiocuda::driver {

// The process ends: borrowers may still use what they have.
Lending::~Lending() = default;

Borrow* Lending::lend(Borrow::Bytes bytes, CUstream theirs, std::shared_ptr<void> kept, bool lasts) {
  if (!theirs)  // nothing is ordered, nor asked about: it is noted when it is given back
    return std::make_unique<Borrow>(std::move(bytes), theirs, 0, std::move(kept), nullptr, lasts).release();
  ContextScope scope(devices_);
  scope.bind(bytes.device);
  streams_.require_not_captured(theirs, bytes.device);
  const unsigned long long number = Relays::number_of(devices_.table(), theirs);
  order(theirs, bytes);
  dataflow::Buffer& buffer = *bytes.buffer;
  std::shared_ptr<void> held = streams_.hold(theirs, bytes.device, number);
  lasts = lasts || held || Streams::is_default(theirs);
  auto borrow = std::make_unique<Borrow>(std::move(bytes), theirs, number, std::move(kept), std::move(held), lasts);
  live_[&buffer].push_back(borrow.get());
  buffer.is_lent = true;
  return borrow.release();
}

void Lending::order(CUstream theirs, const Borrow::Bytes& bytes) {
  ContextScope scope(devices_);
  scope.bind(bytes.device);
  admit(*bytes.buffer, bytes.span, bytes.writes);
  streams_.order_others(theirs, bytes.device, *bytes.buffer, bytes.pieces, bytes.writes);
}

void Lending::give_back(Borrow* borrow) noexcept {
  borrow->next_ = given_back_.load(std::memory_order_relaxed);
  while (!given_back_.compare_exchange_weak(borrow->next_, borrow, std::memory_order_release)) {
  }
}

bool Lending::is_same_stream(const Borrow& borrow) const {
  streams_.require_not_captured(borrow.theirs_, borrow.bytes_.device);
  return Relays::is_there(devices_.table(), borrow.theirs_, borrow.number_);
}

// What comes later comes after what is on the borrower's stream now.
void Lending::note(Borrow& borrow) {
  ContextScope scope(devices_);
  scope.bind(borrow.bytes_.device);
  // Nobody can be ordered after a stream that was destroyed: its owner has waited for its work. Another one may have
  // its handle.
  if (!is_same_stream(borrow)) return;
  if (streams_.has_passed_all(borrow.theirs_, borrow.bytes_.device)) return;
  const Tick now = relays_.behind(borrow.theirs_, borrow.bytes_.device);
  for (const dataflow::Span piece : borrow.bytes_.pieces) {
    dataflow::RangeHazards& hazards = borrow.bytes_.buffer->hazards;
    if (borrow.bytes_.writes)
      hazards.commit_of_others(piece, now);
    else
      hazards.commit_reads_of_others(piece, now);
    hazards.forget_passed(timeline_);
  }
}

void Lending::admit(const dataflow::Buffer& buffer, dataflow::Span span, bool writes) {
  note_ends();
  const auto live = live_.find(&buffer);
  if (live == live_.end()) return;
  for (Borrow* const borrow : live->second) {
    const Borrow::Bytes& bytes = borrow->bytes_;
    if ((writes || bytes.writes) && bytes.span.begin < span.end && span.begin < bytes.span.end) note(*borrow);
  }
}

void Lending::tell(const dataflow::Buffer& buffer, dataflow::Span span, bool writes) {
  const auto live = live_.find(&buffer);
  if (live == live_.end()) return;
  for (const Borrow* const borrow : live->second) {
    const Borrow::Bytes& bytes = borrow->bytes_;
    const dataflow::Span both{std::max(span.begin, bytes.span.begin), std::min(span.end, bytes.span.end)};
    if (!(writes || bytes.writes) || both.begin >= both.end) continue;
    ContextScope scope(devices_);
    scope.bind(bytes.device);
    if (is_same_stream(*borrow)) streams_.order_others(borrow->theirs_, bytes.device, buffer, {&both, 1}, bytes.writes);
  }
}

void Lending::note_ends() {
  for (Borrow* next = given_back_.exchange(nullptr, std::memory_order_acquire); next; next = next->next_)
    ended_.push_back(next);
  std::erase_if(ended_, [this](Borrow* borrow) {
    if (!borrow->theirs_) {
      gone_.emplace_back(borrow);
      return true;
    }
    try {
      if (borrow->lasts_) note(*borrow);
    } catch (const Refusal& refusal) {  // it goes on counting as lent, but a broken context runs nothing any more
      if (!breaks_context(refusal.result)) return false;
    }
    dataflow::Buffer& buffer = *borrow->bytes_.buffer;
    std::vector<Borrow*>& borrows = live_[&buffer];
    std::erase(borrows, borrow);
    if (borrows.empty()) {
      live_.erase(&buffer);
      buffer.is_lent = false;
    }
    gone_.emplace_back(borrow);
    return true;
  });
}

void Lending::drop_given_back() {
  note_ends();
  const auto gone = std::exchange(gone_, {});  // objects of Python's may come back here
}

}  // namespace aiocuda::driver
