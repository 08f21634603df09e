// Memory and events that processes lend one another, by handles that are plain bytes.
//
// Always true: memory of another process is closed once, when nobody here holds it and the device has passed all that used it.
#include <algorithm>

#include "engine.hpp"

namespace aiocuda::driver {

Engine::Exported Engine::export_array(const dataflow::Array& array) {
  Submission submission(*this);
  ContextScope scope(*this);
  scope.bind(array.device);
  const std::uint64_t block = array.buffer->address;
  Exported exported{.memory = {}, .event = {}, .block_bytes = Interprocess::size_of(array.buffer->size_bytes)};
  check(table.cuIpcGetMemHandle(&exported.memory, block), "cuIpcGetMemHandle");
  CUevent event = nullptr;
  check(interprocess(array.device).kind().event_of(table, block, event, without_gil), "cuEventCreate");
  // Recorded where it holds up nobody, behind all that touches the array now: who opens it may write it.
  const StreamIndex ready = aside(array.device);
  order(ready, *array.buffer, array.span());
  check(table.cuEventRecord(event, streams_[ready].handle), "cuEventRecord");
  check(table.cuIpcGetEventHandle(&exported.event, event), "cuIpcGetEventHandle");
  return exported;
}

dataflow::BufferRef Engine::open_memory(const CUipcMemHandle& handle, std::uint64_t block_bytes, std::int32_t ordinal) {
  ContextScope scope(*this);
  scope.bind(ordinal);
  CUdeviceptr address = 0;
  check(without_gil([&] { return table.cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS); }), "cuIpcOpenMemHandle");
  // Who opens it again gets the same address, and has to close it once more: here it is opened once.
  for (dataflow::Buffer* known = own_.next; known; known = known->next) {
    if (known->kind != dataflow::MemoryKind::opened || known->address != address || known->device != ordinal) continue;
    const auto gone = std::find_if(returned_.begin(), returned_.end(), [known](const auto& each) { return each.get() == known; });
    if (!known->holders && gone == returned_.end()) continue;  // another thread closes it now
    dataflow::BufferRef again;
    if (known->holders) {
      again = dataflow::BufferRef::another(*known);
    } else {
      again = dataflow::BufferRef(std::move(*gone));
      returned_.erase(gone);
    }
    close_memory(address);
    return again;
  }
  auto buffer = std::make_unique<dataflow::Buffer>(block_bytes, ordinal, dataflow::MemoryKind::opened);
  buffer->address = address;
  take_in(*buffer);
  return dataflow::BufferRef(std::move(buffer));
}

CUevent Engine::open_event(const CUipcEventHandle& handle, std::int32_t ordinal) {
  ContextScope scope(*this);
  scope.bind(ordinal);
  CUevent event = nullptr;
  check(table.cuIpcOpenEventHandle(&event, handle), "cuIpcOpenEventHandle");
  return event;
}

// Refused only by a broken context, with which it is closed.
void Engine::close_memory(CUdeviceptr address) {
  without_gil([&] { return table.cuIpcCloseMemHandle(address); });
}

}  // namespace aiocuda::driver
