// See communicator.hpp.
#include "communicator.hpp"

namespace aiocuda::emulator::nccl {
namespace {

// How often a rank that waits looks whether the others are alive. Whatever they post wakes it at once.
constexpr std::chrono::milliseconds between_looks{20};

std::string in_words(RankState state) {
  switch (state) {
    case RankState::aborted:
      return "has aborted the communicator";
    case RankState::left:
      return "has destroyed its communicator";
    default:
      return "is gone: its process has ended";
  }
}

std::string waits_for_one_that_is_gone(int rank, int other, RankState state) {
  return "rank " + std::to_string(rank) + " waits for rank " + std::to_string(other) + ", which " + in_words(state);
}

}  // namespace

Communicator::Communicator(std::string name, int ranks, int rank, CUdevice device, Options options)
    : name_(std::move(name)), ranks_(ranks), rank_(rank), device_(device), options_(options) {}

Communicator::~Communicator() {
  if (later_.joinable()) later_.join();
  if (last_event != nullptr) cuEventDestroy_v2(last_event);
}

ncclResult_t Communicator::join() {
  try {
    segment_ = std::make_unique<Segment>(name_, ranks_, rank_);
  } catch (const Refused& refused) {
    note(refused.result, refused.message);
    return refused.result;
  }
  const auto missing = [&] {
    for (int each = 0; each < ranks_; ++each) {
      if (segment_->part(each).state.load() == RankState::absent) return each;
    }
    return -1;
  };
  // A rank that has not come yet may come later; one that came and went shows when somebody waits for its data.
  while (missing() >= 0) {
    const std::uint32_t heard = segment_->bell();
    if (aborted_.load()) break;
    if (missing() >= 0) segment_->wait(heard, between_looks);
  }
  segment_->remove_name();
  if (missing() < 0) return ncclSuccess;
  note(ncclInvalidUsage, "the communicator was aborted before all ranks had joined it");
  return ncclInvalidUsage;
}

void Communicator::run_later(std::function<void()> function) {
  if (later_.joinable()) later_.join();
  begin_progress();
  later_ = std::thread([this, function = std::move(function)] {
    function();
    end_progress();
  });
}

ncclResult_t Communicator::connect(const std::function<int()>& missing) {
  while (true) {
    const std::uint32_t heard = segment_->bell();
    const int rank = missing();
    if (rank < 0) return ncclSuccess;
    if (aborted_.load()) {
      note(ncclInternalError, "the communicator was aborted while its ranks were connected");
      return ncclInternalError;
    }
    if (is_gone(rank) && missing() == rank) {
      note(ncclRemoteError, waits_for_one_that_is_gone(rank_, rank, segment_->part(rank).state.load()));
      return ncclRemoteError;
    }
    segment_->wait(heard, between_looks);
  }
}

void Communicator::add_child(const std::shared_ptr<Communicator>& child) {
  if (!options_.shares) return;
  const std::lock_guard lock(mutex_);
  sharing_.push_back(child);
  if (aborted_.load()) child->aborted_.store(true);
}

bool Communicator::is_gone(int rank) const noexcept {
  return segment_->part(rank).state.load() != RankState::here || !segment_->is_alive(rank);
}

ncclResult_t Communicator::state() const {
  const std::lock_guard lock(mutex_);
  if (error_ != ncclSuccess) return error_;
  return in_progress_.load() > 0 ? ncclInProgress : ncclSuccess;
}

void Communicator::note(ncclResult_t error, const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (error_ != ncclSuccess) return;
  error_ = error;
  message_ = message;
}

std::string Communicator::last_error() const {
  const std::lock_guard lock(mutex_);
  return message_;
}

void Communicator::end_progress() {
  const std::lock_guard lock(mutex_);
  in_progress_.fetch_sub(1);
  progress_.notify_all();
}

void Communicator::mark_aborted() noexcept {
  aborted_.store(true);
  if (state() != ncclInProgress && segment_) {
    segment_->own().state.store(RankState::aborted);
    segment_->ring();
  }
  std::vector<std::weak_ptr<Communicator>> sharing;
  {
    const std::lock_guard lock(mutex_);
    progress_.notify_all();
    sharing = sharing_;
  }
  for (const std::weak_ptr<Communicator>& each : sharing) {
    if (const auto child = each.lock()) child->mark_aborted();
  }
}

void Communicator::abort() noexcept {
  mark_aborted();
  if (later_.joinable()) later_.join();
  if (!segment_) return;
  segment_->own().state.store(RankState::aborted);
  segment_->ring();
  // A thread that exchanges data now lets go of the memory of the arrays first.
  const std::lock_guard turn(turn_);
}

void Communicator::end_work() noexcept {
  const std::lock_guard lock(mutex_);
  work_.fetch_sub(1);
  progress_.notify_all();
}

void Communicator::wait_for_work() {
  std::unique_lock lock(mutex_);
  progress_.wait(lock, [&] { return work_.load() == 0 || aborted_.load(); });
}

void Communicator::leave() {
  wait_for_work();
  if (!segment_) return;
  segment_->own().state.store(RankState::left);
  segment_->ring();
  const auto has_left = [&](int each) {
    const RankPart& part = segment_->part(each);
    return part.state.load() != RankState::here || part.process == segment_->own().process || !segment_->is_alive(each);
  };
  for (int each = 0; each < ranks_;) {
    const std::uint32_t heard = segment_->bell();
    if (has_left(each))
      ++each;
    else
      segment_->wait(heard, between_looks);
  }
}

bool Communicator::wait(const std::function<int()>& missing, const std::function<bool()>& is_over) {
  bool was_told = false;
  while (true) {
    const std::uint32_t heard = segment_->bell();
    if (aborted_.load() || is_over()) return false;
    const int rank = missing();
    if (rank < 0) return true;
    if (!was_told && rank != rank_ && is_gone(rank)) {
      // It may have done it just before it left.
      if (missing() < 0) return true;
      note(ncclRemoteError, waits_for_one_that_is_gone(rank_, rank, segment_->part(rank).state.load()));
      was_told = true;
    }
    segment_->wait(heard, between_looks);
  }
}

int Communicator::add_operator(const Operator& made) {
  const std::lock_guard lock(mutex_);
  operators_.emplace(next_operator_, made);
  return next_operator_++;
}

bool Communicator::remove_operator(int number) {
  const std::lock_guard lock(mutex_);
  return operators_.erase(number) > 0;
}

std::optional<Operator> Communicator::find_operator(int number) const {
  const std::lock_guard lock(mutex_);
  const auto found = operators_.find(number);
  return found == operators_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace aiocuda::emulator::nccl
