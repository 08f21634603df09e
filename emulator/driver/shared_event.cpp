// One page of a shared file for each event, and the system's waits for a word in it.
#include "shared_event.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <new>

#include "shared_word.hpp"

namespace aiocuda::emulator {
namespace {

constexpr std::uint64_t magic = 0x61696f6375646165;  // "aiocudae"
constexpr std::size_t kept_records = 128;

struct Record {
  std::atomic<std::uint64_t> number;
  std::atomic<std::uint64_t> process_started;
  std::atomic<std::int32_t> process;
  std::atomic<std::uint32_t> has_passed;
};

}  // namespace

struct SharedEvent::Page {
  std::uint64_t magic;
  std::atomic<std::uint64_t> last;
  std::atomic<std::uint64_t> begun;
  std::atomic<std::uint32_t> passes;  // a word to wait for: it changes whenever a record passes
  std::array<Record, kept_records> records;
  Record& at(std::uint64_t number) noexcept { return records[number % kept_records]; }
};

std::shared_ptr<SharedEvent> SharedEvent::map(memory::Descriptor descriptor) {
  static_assert(sizeof(Page) <= 4096);
  void* const memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.number(), 0);
  if (memory == MAP_FAILED) return nullptr;
  return std::shared_ptr<SharedEvent>(new SharedEvent(std::move(descriptor), *static_cast<Page*>(memory)));
}

std::shared_ptr<SharedEvent> SharedEvent::make() {
  memory::Descriptor descriptor(::memfd_create("emulated-cuda-event", MFD_CLOEXEC));
  if (!descriptor || ::ftruncate(descriptor.number(), sizeof(Page)) != 0) return nullptr;
  auto event = map(std::move(descriptor));
  if (event) event->page_.magic = magic;
  return event;
}

std::shared_ptr<SharedEvent> SharedEvent::open(memory::Descriptor descriptor) {
  if (memory::bytes_of(descriptor.number()) != sizeof(Page)) return nullptr;
  auto event = map(std::move(descriptor));
  return event && event->page_.magic == magic ? event : nullptr;
}

SharedEvent::~SharedEvent() { ::munmap(&page_, sizeof(Page)); }

std::uint64_t SharedEvent::last_record() const noexcept { return page_.last.load(); }

std::uint64_t SharedEvent::begin_record() noexcept {
  const std::uint64_t number = page_.begun.fetch_add(1) + 1;
  const ProcessIdentity self = this_process();
  Record& record = page_.at(number);
  record.has_passed.store(0);
  record.process.store(self.id);
  record.process_started.store(self.started);
  record.number.store(number);
  std::uint64_t last = page_.last.load();
  while (last < number && !page_.last.compare_exchange_weak(last, number)) {
  }
  return number;
}

void SharedEvent::pass(std::uint64_t number) noexcept {
  Record& record = page_.at(number);
  if (record.number.load() != number || record.has_passed.exchange(1) != 0) return;
  page_.passes.fetch_add(1);
  wake_all(page_.passes);
}

bool SharedEvent::passed(std::uint64_t number) const noexcept {
  const Record& record = page_.at(number);
  if (record.has_passed.load() != 0) return true;
  return !ProcessIdentity{record.process.load(), record.process_started.load()}.is_alive();
}

void SharedEvent::wait(std::uint64_t number, const std::function<bool()>& gives_up) const {
  while (true) {
    const std::uint32_t passes = page_.passes.load();
    if (passed(number) || gives_up()) return;
    sleep_while(page_.passes, passes, &between_looks);  // who records may have ended
  }
}

}  // namespace aiocuda::emulator
