// cuFile's functions: see cufile.hpp.
#include "cufile.hpp"

#include <dlfcn.h>

#include <stdexcept>

namespace aiocuda::driver {
namespace {

constexpr int file_descriptor = 1;  // CU_FILE_HANDLE_TYPE_OPAQUE_FD

template <class Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  if (!function) throw std::runtime_error(std::string("it has no function ") + name);
}

}  // namespace

CuFile::CuFile(const std::string& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW);  // it stays: its threads do, too
  if (!library) throw std::runtime_error(::dlerror());
  Open* open = nullptr;
  find(library, "cuFileDriverOpen", open);
  find(library, "cuFileHandleRegister", register_);
  find(library, "cuFileHandleDeregister", deregister_);
  find(library, "cuFileReadAsync", read_);
  find(library, "cuFileWriteAsync", write_);
  if (const Error error = open(); error.code)
    throw std::runtime_error("cuFileDriverOpen answers " + std::to_string(error.code) + ", CUresult " +
                             std::to_string(static_cast<int>(error.of_driver)));
}

CuFile::Handle CuFile::take(int descriptor) {
  Description described{file_descriptor, {descriptor}, nullptr};
  Handle handle = nullptr;
  return register_(&handle, &described).code == 0 ? handle : nullptr;
}

void CuFile::give_back(Handle handle) noexcept { deregister_(handle); }

void CuFile::move(Handle handle, bool reads, std::uint64_t address, staging::DirectPart& part, void* stream) {
  Move* const call = reads ? read_ : write_;
  const Error error = call(handle, reinterpret_cast<void*>(address), &part.size_bytes, &part.offset,
                           &part.offset_in_memory, &part.moved_bytes, static_cast<CUstream>(stream));
  if (error.code) part.moved_bytes = -static_cast<ssize_t>(error.code);
}

}  // namespace aiocuda::driver
