// The memory of arrays: allocated, counted, borrowed from others, and freed behind its users.
//
// Always true: memory is freed only behind all work that uses it. A refused call leaves nothing allocated, and a later
// `free_due` frees an array whose free must wait. A finalizer calls no driver in the middle of a submission. Guarded by
// the GIL.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../dataflow/buffer.hpp"
#include "blocks.hpp"
#include "freeing.hpp"
#include "retained.hpp"
#include "streams.hpp"

namespace aiocuda::driver {

class Memory final : public dataflow::MemoryOwner {
 public:
  Memory(Devices& devices, Streams& streams, dataflow::Timeline& timeline, Surroundings& around)
      : devices_(devices),
        streams_(streams),
        timeline_(timeline),
        around_(around),
        table_(devices.table()),
        now_(devices.now()),
        freeing_(devices.table()),
        page_locked_(devices.table()) {}

  // All of them throw Refusal. `before_retry` is called where memory that is to be freed may help.
  dataflow::BufferRef allocate_device(std::int32_t device, std::uint64_t size_bytes, StreamIndex stream,
                                      const std::function<void()>& before_retry);
  dataflow::BufferRef allocate_host(std::uint64_t size_bytes, const std::function<void()>& before_retry = [] {});
  // If no block is kept from before, the driver may wait for the device.
  dataflow::BufferRef allocate_managed(std::int32_t device, std::uint64_t size_bytes);
  dataflow::BufferRef allocate_interprocess(std::int32_t device, std::uint64_t size_bytes);
  // Gives a buffer its memory that has none yet: page-locked where it is the host's, else in the order of a stream.
  void allocate(dataflow::Buffer& buffer, StreamIndex stream);

  // Page-locked memory, managed memory and that for other processes come in blocks. Is there one, or is it so small
  // that the driver gives it in no time? `device`: `host_ordinal` for page-locked memory.
  bool has_block(dataflow::MemoryKind kind, std::int32_t device, std::uint64_t size_bytes);
  // Memory of these kinds, by a thread that holds up nobody: the driver is asked without the GIL. In a context's scope.
  dataflow::BufferRef allocate_ahead(dataflow::MemoryKind kind, std::int32_t device, std::uint64_t size_bytes);

  void take_back(std::unique_ptr<dataflow::Buffer> buffer) noexcept override;
  bool has_returned() const { return !returned_.empty() || waiting_.size(); }
  // Frees what nobody holds any more, unless calls are held back: in stream order on a device. Other memory goes when
  // it has been passed: the driver is asked about so many of the streams that such memory waits for, in turn.
  void free_due(std::size_t most_streams = all_streams);
  // Closes other processes' memory that nobody holds any more. Others may submit meanwhile.
  void close_due();
  // Has memory of somebody else's, which the driver has locked, unlocked when all devices are at rest. `keeper` is let
  // go of some time after that, where this is called.
  void unlock_at_rest(std::uint64_t address, std::shared_ptr<void> keeper) {
    locked_.push_back({address, std::move(keeper)});
    around_.note_return();
  }
  // Is there page-locked or managed memory that is not to be kept?
  bool has_excess() const {
    return !locked_.empty() || unlocked_.keeper || page_locked_.has_excess() ||
           std::any_of(managed_.begin(), managed_.end(), [](const auto& each) { return each.second.has_excess(); });
  }
  // Has another thread give one block that is not kept back to the driver, if there is one and all devices are at rest:
  // the driver waits for them first. By somebody who has the right to submit.
  void free_excess();
  // Is that going on? Nobody may submit meanwhile: the driver would wait for that work as well, and launches of all
  // threads would wait for the driver (seen on an H100).
  bool is_freeing() const { return freeing_.is_at_work(); }
  void await_freeing() { freeing_.finish(); }
  // Waits for what goes back to the driver, for some time.
  void shut_down();

  // The memory at an address: of an array here; or somebody else's, all of which on a device is one buffer, by address.
  struct Borrowed {
    dataflow::BufferRef buffer;
    std::uint64_t offset;           // of the address in the buffer
    std::uint64_t allocated_bytes;  // from there on: how much of it is memory, as far as somebody wants to know
  };
  Borrowed borrow(CUdeviceptr address, std::uint64_t wanted_bytes, std::int32_t device);
  // The same for arrays of frameworks, of which there are many in the same memory: what is known of it is remembered.
  Borrowed borrow_again(CUdeviceptr address, std::uint64_t wanted_bytes, std::int32_t device);

  // The bytes that arrays hold on a device, and the most that they held since the last reset.
  struct Account {
    std::uint64_t used_bytes = 0, peak_bytes = 0;
    std::uint64_t managed_bytes = 0;  // are none of the device's memory
    void add(std::uint64_t size_bytes) {
      used_bytes += size_bytes;
      peak_bytes = std::max(peak_bytes, used_bytes);
    }
  };
  // Opens the device.
  Account& account(std::int32_t device) {
    devices_.at(device);
    return known_account(device);
  }
  // Would arrays and guests hold no more than `most_bytes` with so much more? Memory that nobody holds does not count,
  // if it is freed.
  bool has_room(std::int32_t device, std::uint64_t most_bytes, std::uint64_t size_bytes) {
    return size_bytes <= most_bytes &&
           account(device).used_bytes + devices_.guests().account(device).used_bytes() <= most_bytes - size_bytes;
  }
  // The buffers that somebody holds on a device, or in page-locked memory for `host_ordinal`; or in a device's managed
  // memory. The latest first.
  template <class F>
  void each_buffer(std::int32_t ordinal, bool is_managed, F&& f) const {
    for (const dataflow::Buffer* each = own_.next; each; each = each->next)
      if (each->device == ordinal && each->holders && each->kind != dataflow::MemoryKind::opened &&
          (each->kind == dataflow::MemoryKind::managed) == is_managed)
        f(*each);
  }

  BlockPool<PageLocked>& page_locked() { return page_locked_; }
  BlockPool<Managed>& managed(std::int32_t device) { return managed_.try_emplace(device, table_).first->second; }
  BlockPool<Interprocess>& interprocess(std::int32_t device) {
    return interprocess_.try_emplace(device, table_).first->second;
  }
  // Gives back the device's blocks that nobody uses. Waits until it has done all its work, if there are any; other
  // threads go on meanwhile.
  void trim_blocks(std::int32_t device);
  // Tells the driver how bytes of a buffer in managed memory will be used.
  CUresult advise(const dataflow::Buffer& buffer, dataflow::Span span, CUmem_advise advice, CUmemLocation location);

  // The handles with which another process opens a buffer's memory, and waits for the work that uses its bytes now.
  struct Exported {
    CUipcMemHandle memory;
    CUipcEventHandle event;
    std::uint64_t block_bytes;  // of all that is opened
  };
  Exported export_bytes(const dataflow::Buffer& buffer, dataflow::Span span);
  // Memory of another process: the same buffer as long as somebody here holds it or the device works on it; closed
  // then.
  dataflow::BufferRef open(const CUipcMemHandle& handle, std::uint64_t block_bytes, std::int32_t device);

 private:
  void allocate_device(dataflow::Buffer& buffer, StreamIndex stream, const std::function<void()>& before_retry);
  void allocate_host(dataflow::Buffer& buffer, const std::function<void()>& before_retry);
  // Has the driver given back what can be had back now.
  void reclaim();
  template <class Kind>
  CUresult allocate_block(
      BlockPool<Kind>& pool, dataflow::Buffer& buffer, const std::function<void()>& before_retry = [] {});
  void take_in(dataflow::Buffer& buffer);
  // Memory that knows no streams, and that all its users have passed.
  void give_back(const dataflow::Buffer& buffer);
  // False: not yet.
  bool free_device(dataflow::Buffer& buffer);
  bool is_lost(StreamIndex stream) const;
  void note_freed(const dataflow::Buffer& buffer);
  std::uint64_t allocated_bytes(CUdeviceptr address, std::uint64_t wanted_bytes, std::int32_t device) const;
  void forget_foreign(CUdeviceptr begin, CUdeviceptr end);
  Account& known_account(std::int32_t device) {
    const auto slot = static_cast<std::size_t>(device);
    if (accounts_.size() <= slot) [[unlikely]]
      accounts_.resize(slot + 1);
    return accounts_[slot];
  }
  void close(CUdeviceptr address);
  // Page-locked memory is every context's: any will do to allocate it and to give it back.
  std::int32_t device_of(const dataflow::Buffer& buffer) const {
    return buffer.device == dataflow::host_ordinal ? streams_.at(0).device : buffer.device;
  }
  // Other threads go on meanwhile, unless calls are held back: what is counted as submitted they would take for that.
  auto slowly() const {
    return [this](auto&& call) -> CUresult { return now_.has_all() ? around_.call_slowly(call) : call(); };
  }

  Devices& devices_;
  Streams& streams_;
  dataflow::Timeline& timeline_;
  Surroundings& around_;
  const Table& table_;
  const DriverNow& now_;
  std::vector<std::unique_ptr<dataflow::Buffer>> returned_;
  Retained<std::unique_ptr<dataflow::Buffer>> waiting_;         // until a user that had not passed has
  std::vector<std::pair<std::int32_t, CUdeviceptr>> to_close_;  // other processes' memory, by device
  dataflow::Buffer own_{};                                      // the head of the list of buffers
  std::map<std::int32_t, dataflow::BufferRef> foreign_;         // by device
  struct Foreign {
    CUdeviceptr end;
    std::int32_t device;
  };
  std::map<CUdeviceptr, Foreign> known_foreign_;  // memory of others', by where it begins; none of it is ours
  std::deque<Account> accounts_;                  // by device
  struct Locked {
    std::uint64_t address = 0;
    std::shared_ptr<void> keeper;
  };
  std::vector<Locked> locked_;  // to be unlocked
  Locked unlocked_;             // which the thread has, or had last
  FreeingThread freeing_;
  BlockPool<PageLocked> page_locked_;
  std::map<std::int32_t, BlockPool<Managed>> managed_;            // by device
  std::map<std::int32_t, BlockPool<Interprocess>> interprocess_;  // by device
};

}  // namespace aiocuda::driver
