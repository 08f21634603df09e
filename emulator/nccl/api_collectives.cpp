// NCCL's collectives and messages. Each call is looked at as far as it can be before anything is put on a stream.
#include "group.hpp"
#include "handles.hpp"

using namespace aiocuda::emulator::nccl;

#define NCCL_API extern "C" [[gnu::visibility("default")]]

namespace {

void check_stream(const Communicator& communicator, CUstream stream) {
  CUdevice device = 0;
  const CUresult result = cuStreamGetDevice(stream, &device);
  if (result != CUDA_SUCCESS) throw Refused{ncclUnhandledCudaError, "the stream is none, or its device is lost"};
  if (device != communicator.device()) {
    throw Refused{ncclInvalidUsage, "the stream is of device " + std::to_string(device) +
                                        ", the communicator of device " + std::to_string(communicator.device())};
  }
}

// Memory of the communicator's own device, or page-locked memory.
void check_memory(const Communicator& communicator, const void* memory, const char* what) {
  if (memory == nullptr) throw Refused{ncclInvalidArgument, std::string(what) + " is null"};
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  unsigned kind = 0;
  int device = 0;
  const bool is_known = cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
                        cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) == CUDA_SUCCESS;
  if (!is_known) throw Refused{ncclInvalidArgument, std::string(what) + " is no memory of a device"};
  if (kind == CU_MEMORYTYPE_DEVICE && device != communicator.device()) {
    throw Refused{ncclInvalidArgument, std::string(what) + " is memory of device " + std::to_string(device) +
                                           ", the communicator is of device " + std::to_string(communicator.device())};
  }
}

void check_rank(const Communicator& communicator, int rank, const char* what) {
  if (rank < 0 || rank >= communicator.ranks()) {
    throw Refused{ncclInvalidArgument, std::string(what) + " is " + std::to_string(rank) + " of " +
                                           std::to_string(communicator.ranks()) + " ranks"};
  }
}

void check_type(ncclDataType_t type) {
  if (type < 0 || type >= ncclNumTypes) {
    throw Refused{ncclInvalidArgument, "data type " + std::to_string(static_cast<int>(type)) + " is none"};
  }
}

ncclResult_t collective(Kind kind, const void* send, void* receive, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t handle, CUstream stream) {
  return grouped([&] {
    const std::shared_ptr<Communicator> communicator = usable(handle);
    check_type(type);
    check_rank(*communicator, root, "the root");
    check_stream(*communicator, stream);
    Operator reduction;
    if (op >= 0 && op < ncclNumOps) {
      reduction = built_in_operator(op, type, communicator->ranks());
    } else if (const auto made = communicator->find_operator(op)) {
      reduction = *made;
    } else {
      throw Refused{ncclInvalidArgument, "operator " + std::to_string(op) + " is none of this communicator's"};
    }
    const bool is_root = root == communicator->rank();
    const bool only_root_sends = kind == Kind::broadcast || kind == Kind::scatter;
    const bool only_root_receives = kind == Kind::reduce || kind == Kind::gather;
    if (count > 0 && (is_root || !only_root_sends)) check_memory(*communicator, send, "what is sent");
    if (count > 0 && (is_root || !only_root_receives)) check_memory(*communicator, receive, "what is received");
    if (count == 0) return;
    // A root that broadcasts in place has nothing to write.
    if (kind == Kind::broadcast && is_root && send == receive) receive = nullptr;
    // Each rank multiplies by a scalar of its own, so the number of an operator need not agree.
    const ncclRedOp_t described = op < ncclNumOps ? op : ncclNumOps;
    add(communicator,
        Collective{kind, static_cast<const std::byte*>(send), static_cast<std::byte*>(receive), count, type, described,
                   reduction, root},
        stream);
  });
}

ncclResult_t message(bool is_sent, void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t handle,
                     CUstream stream) {
  return grouped([&] {
    const std::shared_ptr<Communicator> communicator = usable(handle);
    check_type(type);
    check_rank(*communicator, peer, "the peer");
    check_stream(*communicator, stream);
    if (count == 0) return;
    check_memory(*communicator, data, is_sent ? "what is sent" : "what is received");
    add(communicator, Message{is_sent, static_cast<std::byte*>(data), count * bytes_of(type), peer}, stream);
  });
}

}  // namespace

NCCL_API ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                                    ncclRedOp_t op, ncclComm_t communicator, CUstream stream) {
  return collective(Kind::all_reduce, send, receive, count, type, op, 0, communicator, stream);
}

NCCL_API ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root,
                                    ncclComm_t communicator, CUstream stream) {
  return collective(Kind::broadcast, send, receive, count, type, ncclSum, root, communicator, stream);
}

NCCL_API ncclResult_t ncclBcast(void* buffer, std::size_t count, ncclDataType_t type, int root, ncclComm_t communicator,
                                CUstream stream) {
  return collective(Kind::broadcast, buffer, buffer, count, type, ncclSum, root, communicator, stream);
}

NCCL_API ncclResult_t ncclReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                                 ncclRedOp_t op, int root, ncclComm_t communicator, CUstream stream) {
  return collective(Kind::reduce, send, receive, count, type, op, root, communicator, stream);
}

NCCL_API ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                                    ncclComm_t communicator, CUstream stream) {
  return collective(Kind::all_gather, send, receive, count, type, ncclSum, 0, communicator, stream);
}

NCCL_API ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                                        ncclRedOp_t op, ncclComm_t communicator, CUstream stream) {
  return collective(Kind::reduce_scatter, send, receive, count, type, op, 0, communicator, stream);
}

NCCL_API ncclResult_t ncclAlltoAll(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                                   ncclComm_t communicator, CUstream stream) {
  return collective(Kind::all_to_all, send, receive, count, type, ncclSum, 0, communicator, stream);
}

NCCL_API ncclResult_t ncclGather(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root,
                                 ncclComm_t communicator, CUstream stream) {
  return collective(Kind::gather, send, receive, count, type, ncclSum, root, communicator, stream);
}

NCCL_API ncclResult_t ncclScatter(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root,
                                  ncclComm_t communicator, CUstream stream) {
  return collective(Kind::scatter, send, receive, count, type, ncclSum, root, communicator, stream);
}

NCCL_API ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer,
                               ncclComm_t communicator, CUstream stream) {
  return message(true, const_cast<void*>(data), count, type, peer, communicator, stream);
}

NCCL_API ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                               CUstream stream) {
  return message(false, data, count, type, peer, communicator, stream);
}
