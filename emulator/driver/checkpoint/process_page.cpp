// See process_page.hpp.
#include "checkpoint/process_page.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "shared_word.hpp"

namespace aiocuda::emulator::checkpoint {
namespace {

constexpr std::uint64_t magic = 0x61696f6375646170;  // "aiocudap"
constexpr char file_name[] = "emulated-cuda-process";

class Locked {
 public:
  explicit Locked(int descriptor) noexcept : descriptor_(descriptor) {
    while (::flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~Locked() { ::flock(descriptor_, LOCK_UN); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  const int descriptor_;
};

// The descriptors of a process's pages: its own, and one that it may have inherited.
std::vector<memory::Descriptor> pages_of(int process, int& error) {
  std::vector<memory::Descriptor> found;
  const std::string folder = "/proc/" + std::to_string(process) + "/fd/";
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir(folder.c_str()), &::closedir);
  error = listing ? 0 : errno;
  if (!listing) return found;
  const std::string wanted = std::string("/memfd:") + file_name + " (deleted)";
  while (const dirent* const entry = ::readdir(listing.get())) {
    const std::string path = folder + entry->d_name;
    std::array<char, 128> target{};
    if (::readlink(path.c_str(), target.data(), target.size() - 1) <= 0 || wanted != target.data()) continue;
    memory::Descriptor opened(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (opened) found.push_back(std::move(opened));
  }
  return found;
}

}  // namespace

struct ProcessPage::Page {
  std::uint64_t magic;
  std::uint64_t process_started;
  std::int32_t process;
  std::atomic<std::uint32_t> thread;  // 0 until it has begun
  std::atomic<std::uint32_t> state;
  std::atomic<std::uint32_t> given, answered;  // how many orders; words to wait for
  std::atomic<std::int32_t> result;            // of the last answer
  Order order;                                 // written while all that were given are answered
};

std::unique_ptr<ProcessPage> ProcessPage::map(memory::Descriptor descriptor) {
  static_assert(sizeof(Page) <= 4096);
  void* const memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.number(), 0);
  if (memory == MAP_FAILED) return nullptr;
  return std::unique_ptr<ProcessPage>(new ProcessPage(std::move(descriptor), *static_cast<Page*>(memory)));
}

std::unique_ptr<ProcessPage> ProcessPage::make() {
  memory::Descriptor descriptor(::memfd_create(file_name, MFD_CLOEXEC));
  if (!descriptor || ::ftruncate(descriptor.number(), sizeof(Page)) != 0) return nullptr;
  auto made = map(std::move(descriptor));
  if (!made) return nullptr;
  const ProcessIdentity self = this_process();
  made->page_.process = self.id;
  made->page_.process_started = self.started;
  made->page_.magic = magic;
  return made;
}

CUresult ProcessPage::open(int process, std::unique_ptr<ProcessPage>& page) {
  if (process <= 0) return CUDA_ERROR_INVALID_VALUE;
  int error = 0;
  for (memory::Descriptor& each : pages_of(process, error)) {
    if (memory::bytes_of(each.number()) != sizeof(Page)) continue;
    page = map(std::move(each));
    if (page && page->is_of(process)) return CUDA_SUCCESS;
  }
  page.reset();
  if (error == EACCES || error == EPERM) return CUDA_ERROR_NOT_SUPPORTED;
  return error == 0 ? CUDA_ERROR_NOT_INITIALIZED : CUDA_ERROR_INVALID_VALUE;
}

ProcessPage::~ProcessPage() { ::munmap(&page_, sizeof(Page)); }

bool ProcessPage::is_of(int process) const noexcept {
  return page_.magic == magic && page_.process == process &&
         ProcessIdentity{page_.process, page_.process_started}.is_alive();
}

CUprocessState ProcessPage::state() const noexcept { return static_cast<CUprocessState>(page_.state.load()); }

int ProcessPage::thread() const noexcept {
  // The thread of a driver that was initialised just now has yet to begin.
  while (page_.thread.load() == 0 && is_of(page_.process)) sleep_while(page_.thread, 0, &between_looks);
  return static_cast<int>(page_.thread.load());
}

void ProcessPage::set_thread(int thread) noexcept {
  page_.thread.store(static_cast<std::uint32_t>(thread));
  wake_all(page_.thread);
}

void ProcessPage::set_state(CUprocessState state) noexcept { page_.state.store(static_cast<std::uint32_t>(state)); }

CUresult ProcessPage::give(const Order& order) {
  const Locked lock(descriptor_.number());
  // The process that gave the last order may have ended before it was answered.
  if (const CUresult error = wait_for_answer()) return error;
  page_.order = order;
  page_.given.fetch_add(1);
  wake_all(page_.given);
  if (const CUresult error = wait_for_answer()) return error;
  return static_cast<CUresult>(page_.result.load());
}

CUresult ProcessPage::wait_for_answer() const noexcept {
  const std::uint32_t given = page_.given.load();
  for (std::uint32_t answered = page_.answered.load(); answered != given; answered = page_.answered.load()) {
    if (!is_of(page_.process)) return CUDA_ERROR_INVALID_VALUE;  // it has ended
    sleep_while(page_.answered, answered, &between_looks);
  }
  return CUDA_SUCCESS;
}

Order ProcessPage::wait_for_order() const noexcept {
  const std::uint32_t answered = page_.answered.load();
  while (page_.given.load() == answered) sleep_while(page_.given, answered, nullptr);
  return page_.order;
}

void ProcessPage::answer(CUresult result) noexcept {
  page_.result.store(static_cast<std::int32_t>(result));
  page_.answered.fetch_add(1);
  wake_all(page_.answered);
}

}  // namespace aiocuda::emulator::checkpoint
