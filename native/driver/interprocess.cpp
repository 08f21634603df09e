// Memory and events that processes lend one another, by handles that are plain bytes.
//
// Always true: memory of another process is closed once, when nobody here holds it and the device has passed all that
// used it.
#include <algorithm>

#include "memory.hpp"

namespace aiocuda::driver {

Memory::Exported Memory::export_bytes(const dataflow::Buffer& buffer, dataflow::Span span) {
  ContextScope scope(devices_);
  scope.bind(buffer.device);
  const std::uint64_t block = buffer.address;
  Exported exported{.memory = {}, .event = {}, .block_bytes = Interprocess::size_of(buffer.size_bytes)};
  check(table_.cuIpcGetMemHandle(&exported.memory, block), "cuIpcGetMemHandle");
  CUevent event = nullptr;
  check(interprocess(buffer.device).kind().event_of(table_, block, event, slowly()), "cuEventCreate");
  // Recorded where it holds up nobody, behind all that touches the bytes now: who opens them may write them.
  const StreamIndex ready = streams_.aside(buffer.device);
  streams_.order(ready, buffer, span);
  check(now_.record(event, streams_.at(ready).handle), "cuEventRecord");
  check(table_.cuIpcGetEventHandle(&exported.event, event), "cuIpcGetEventHandle");
  return exported;
}

dataflow::BufferRef Memory::open(const CUipcMemHandle& handle, std::uint64_t block_bytes, std::int32_t ordinal) {
  ContextScope scope(devices_);
  scope.bind(ordinal);
  CUdeviceptr address = 0;
  check(slowly()([&] { return table_.cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS); }),
        "cuIpcOpenMemHandle");
  // A second opening gives the same address, and would have to be closed once more. So it is opened once here.
  for (dataflow::Buffer* known = own_.next; known; known = known->next) {
    if (known->kind != dataflow::MemoryKind::opened || known->address != address || known->device != ordinal) continue;
    const auto gone =
        std::find_if(returned_.begin(), returned_.end(), [known](const auto& each) { return each.get() == known; });
    if (!known->holders && gone == returned_.end()) continue;  // another thread closes it now
    dataflow::BufferRef again;
    if (known->holders) {
      again = dataflow::BufferRef::another(*known);
    } else {
      again = dataflow::BufferRef(std::move(*gone));
      returned_.erase(gone);
    }
    close(address);
    return again;
  }
  auto buffer = std::make_unique<dataflow::Buffer>(block_bytes, ordinal, dataflow::MemoryKind::opened);
  buffer->address = address;
  take_in(*buffer);
  return dataflow::BufferRef(std::move(buffer));
}

void Memory::close_due() {
  if (to_close_.empty()) return;
  ContextScope scope(devices_);
  for (const auto& [ordinal, address] : std::exchange(to_close_, {})) {
    scope.bind(ordinal);
    close(address);
  }
}

// Refused only by a broken context, with which it is closed.
void Memory::close(CUdeviceptr address) {
  slowly()([&] { return now_.close(address); });
}

}  // namespace aiocuda::driver
