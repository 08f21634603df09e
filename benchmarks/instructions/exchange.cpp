// DLPack's exchange in C of a library that costs next to nothing: every tensor is the same one, of 1,024 float32.
#include <cstdint>

extern "C" void Py_IncRef(void* object);

namespace {

struct Tensor {
  void* data;
  std::int32_t kind, ordinal, axes;
  std::uint8_t code, bits;
  std::uint16_t lanes;
  std::int64_t *shape, *strides;
  std::uint64_t byte_offset;
};
struct Managed {
  std::uint32_t major, minor;
  void* context;
  void (*deleter)(Managed*);
  std::uint64_t flags;
  Tensor tensor;
};
struct Table {
  std::uint32_t major, minor;
  const Table* previous;
  void* allocate;
  void* from_object;
  int (*to_object)(Managed*, void**);
  int (*view_of_object)(void*, Tensor*);
  int (*current_work_stream)(std::int32_t, std::int32_t, void**);
};

std::int64_t shape[] = {1024}, strides[] = {1};
void *data, *lent_as, *stream;

// The borrower gives each array back at once.
int to_object(Managed* lent, void** out) {
  lent->deleter(lent);
  Py_IncRef(lent_as);
  *out = lent_as;
  return 0;
}
int view_of_object(void*, Tensor* out) {
  *out = {data, 2, 0, 1, 2, 32, 1, shape, strides, 0};
  return 0;
}
int current_work_stream(std::int32_t, std::int32_t, void** out) {
  *out = stream;
  return 0;
}

const Table table{1, 3, nullptr, nullptr, nullptr, to_object, view_of_object, current_work_stream};

}  // namespace

// Of tensors at an address, of a framework whose current stream is `current`. It gets its loans as `object`.
extern "C" const void* exchange(void* address, void* current, void* object) {
  data = address, stream = current, lent_as = object;
  return &table;
}
