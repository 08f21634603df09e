// See installation.hpp.
#include "installation.hpp"

#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <vector>

#include "sha256.hpp"

namespace aiocuda::emulator::nvrtc {
namespace {

namespace fs = std::filesystem;

Installation locate() {
  Installation found;
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&installation), &info) == 0) {
    found.explanation = "the emulated NVRTC cannot tell where its own library lies";
    return found;
  }
  std::error_code error;
  const fs::path directory = fs::absolute(info.dli_fname, error).parent_path();
  found.device_headers = directory / "include";
  found.visible_headers = directory / "include" / "visible";
  found.runtime_object = directory / "kernel_runtime.o";
  found.checked_runtime_object = directory / "kernel_checked_runtime.o";
  for (const std::string& path :
       {found.device_headers, found.visible_headers, found.runtime_object, found.checked_runtime_object}) {
    if (!fs::exists(path, error)) {
      found.explanation = "the emulated NVRTC is not completely installed: " + path + " is missing";
      return found;
    }
  }
  std::vector<std::string> files;
  for (const fs::directory_entry& file : fs::recursive_directory_iterator(found.device_headers, error)) {
    if (file.is_regular_file(error)) files.push_back(file.path());
  }
  files.push_back(found.runtime_object);
  files.push_back(found.checked_runtime_object);
  files.emplace_back(info.dli_fname);  // it knows how kernels are compiled
  std::sort(files.begin(), files.end());
  std::ostringstream text;
  for (const std::string& file : files) {
    struct stat status{};
    ::stat(file.c_str(), &status);
    text << file << '|' << status.st_size << '|' << status.st_mtim.tv_sec << '.' << status.st_mtim.tv_nsec << '\n';
  }
  found.identity = sha256(text.str());
  found.complete = true;
  return found;
}

}  // namespace

const Installation& installation() {
  static const Installation found = locate();
  return found;
}

}  // namespace aiocuda::emulator::nvrtc
