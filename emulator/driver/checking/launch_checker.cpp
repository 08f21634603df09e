// See launch_checker.hpp.
#include "checking/launch_checker.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "checking/kernel_reports.hpp"
#include "checking/operation.hpp"
#include "checking/recorder.hpp"
#include "hexadecimal.hpp"
#include "memory/physical_memory.hpp"

namespace aiocuda::emulator::checking {
namespace {

const char* verb_of(AccessKind kind) {
  switch (kind) {
    case abi::access_read:
      return "reads";
    case abi::access_write:
      return "writes";
    case abi::access_atomic_read:
      return "reads (atomic or volatile)";
    case abi::access_atomic_write:
      return "writes (atomic or volatile)";
  }
  return "touches";
}

// Where an access goes.
struct Target {
  SharedMemory* shared = nullptr;  // else it is global
  bool is_dynamic = false;
  GivenMemory* given = nullptr;  // null also for variables of the module
};

// The thread of the host that runs blocks, and the block that it runs. Calls come from kernels' stacks, which are small
// and may be left by a fault: nothing here is held across a call but plain memory.
class Runner {
 public:
  LaunchChecker* launch = nullptr;

  void begin(const abi::CheckedRange& range) {
    range_ = range;
    const abi::Dim3& extent = range.launch->block;
    threads_ = extent.x * extent.y * extent.z;
    of_threads_ = reinterpret_cast<std::uintptr_t>(range.thread_index) - launch->facts().thread_index_offset();
    const auto& symbols = launch->facts().of_threads();
    of_threads_bytes_ = symbols.empty() ? 0 : symbols.back().end;
    cluster_ = nullptr;
    const abi::Dim3& cluster = range.launch->cluster;
    is_in_cluster_ = cluster.x * cluster.y * cluster.z > 1;
    if (is_in_cluster_) own_ = {};  // others may hold the windows of the last one
    own_.of_module->open(of_threads_, of_threads_bytes_);
    own_.of_launch->open(reinterpret_cast<std::uintptr_t>(range.dynamic_shared), range.launch->dynamic_shared_bytes);
    pages_.fill({});
    last_given_ = nullptr;
    has_block_ = false;
  }

  void access(std::uintptr_t address, std::uint64_t bytes, AccessKind kind, std::uintptr_t code) {
    if (launch == nullptr || bytes == 0) return;
    look_at_place();
    Target target;
    if (!find(address, bytes, kind, code, target)) return;
    const std::uint32_t thread = linear_thread();
    order_.note(thread, kind,
                target.shared != nullptr ? address ^ (std::uintptr_t{target.shared->block} << 48) : address,
                launch->releases());
    const bool is_shared_by_cluster = target.shared != nullptr && cluster_ != nullptr;
    const auto lock = is_shared_by_cluster ? std::unique_lock(cluster_->mutex) : std::unique_lock<std::mutex>();
    if (settings().checks.init) look_for_writes(target, address, bytes, kind, code);
    if (settings().checks.races) look_for_races(target, thread, address, bytes, kind, code);
  }

  void meet(abi::Meeting meeting, std::uint32_t warp, std::uint32_t lanes) {
    if (launch == nullptr) return;
    look_at_place();
    switch (meeting) {
      case abi::meeting_of_block:
        return order_.meet_block(launch->releases());
      case abi::meeting_of_lanes:
        return order_.meet_lanes(warp, lanes, launch->releases());
      case abi::meeting_fence:
        return order_.fence(linear_thread());
      case abi::meeting_arrival:
        return order_.arrive_in_cluster(cluster_number_, launch->releases());
      case abi::meeting_of_cluster:
        return order_.meet_cluster(cluster_number_, launch->releases());
    }
  }

  void report_meeting(std::uint32_t thread, std::int32_t line, const char* message) {
    if (launch == nullptr || !settings().checks.sync) return;
    KernelReport report;
    report.check = "sync";
    report.line = {main_file(), static_cast<unsigned>(line)};
    report.place = place_of(range_.block_index, thread);
    report.what = message;
    add(report, {"sync", std::to_string(line)});
  }

  void report_misaligned(std::uintptr_t address, std::uint64_t bytes, AccessKind kind, std::uintptr_t code) {
    if (launch == nullptr || !settings().checks.memory) return;
    look_at_place();
    report_access("memory", address, bytes, kind, code, ", an address that is no multiple of its size", "");
  }

 private:
  std::uint32_t linear_thread() const noexcept {
    const abi::Dim3& index = *range_.thread_index;
    const abi::Dim3& extent = range_.launch->block;
    return index.x + extent.x * (index.y + extent.y * index.z);
  }

  ThreadPlace place_of(const abi::Dim3* block, std::uint32_t thread) const {
    const abi::Dim3& extent = range_.launch->block;
    return {{block->x, block->y, block->z},
            {thread % extent.x, thread / extent.x % extent.y, thread / extent.x / extent.y}};
  }

  ThreadPlace place_of(const Cell& cell) const {
    const abi::Dim3& grid = range_.launch->grid;
    const abi::Dim3 block{cell.block % grid.x, cell.block / grid.x % grid.y, cell.block / grid.x / grid.y};
    return place_of(&block, static_cast<std::uint32_t>(cell.thread));
  }

  // Is it another block by now?
  void look_at_place() {
    const abi::Dim3& index = *range_.block_index;
    const abi::Dim3& grid = range_.launch->grid;
    const std::uint32_t block = index.x + grid.x * (index.y + grid.y * index.z);
    if (has_block_ && block == order_.block()) return;
    has_block_ = true;
    order_.begin(block, threads_);
    own_.of_module->forget_writes();
    own_.of_launch->forget_writes();
    own_.of_module->block = own_.of_launch->block = block;
    if (is_in_cluster_) join_cluster(block);
  }

  void join_cluster(std::uint32_t block) {
    const ClusterShape::Place place = ClusterShape(range_.launch->grid, range_.launch->cluster).place(block);
    cluster_number_ = place.cluster;
    cluster_ = &launch->cluster(place.cluster);
    const std::lock_guard lock(cluster_->mutex);
    cluster_->blocks[place.rank] = own_;
  }

  // The window of shared memory where an address lies: the block's own, or one of another block of the cluster.
  void find_shared(std::uintptr_t address, Target& target) {
    if (find_in(own_, address, target) || cluster_ == nullptr) return;
    const std::lock_guard lock(cluster_->mutex);
    for (const SharedWindows& each : cluster_->blocks) {
      if (find_in(each, address, target)) return;
    }
  }
  bool find_in(const SharedWindows& windows, std::uintptr_t address, Target& target) const {
    if (windows.of_launch->begin != 0 && address - windows.of_launch->begin < range_.dynamic_shared_room) {
      target.shared = windows.of_launch.get();
      target.is_dynamic = true;
    } else if (windows.of_module->begin != 0 && address - windows.of_module->begin < of_threads_bytes_) {
      target.shared = windows.of_module.get();
    }
    return target.shared != nullptr;
  }

  // False for memory that the checks do not look at, and for an access that was reported.
  bool find(std::uintptr_t address, std::uint64_t bytes, AccessKind kind, std::uintptr_t code, Target& target) {
    find_shared(address, target);
    if (target.shared != nullptr) {
      const std::uintptr_t offset = address - target.shared->begin;
      if (target.is_dynamic)
        return offset + bytes <= target.shared->written.size() ||
               (report_dynamic(offset, address, bytes, kind, code), false);
      const Symbol* const symbol = ImageFacts::find(launch->facts().of_threads(), offset);
      if (symbol == nullptr || symbol->kind == Symbol::Kind::other) return false;
      return (symbol->kind == Symbol::Kind::shared && offset + bytes <= symbol->end) ||
             (report_static(*symbol, offset, address, bytes, kind, code), false);
    }
    if (last_given_ == nullptr || address < last_given_->begin || address >= last_given_->end)
      last_given_ = launch->memory().find(address);
    if (last_given_ != nullptr) {
      target.given = last_given_;
      return address + bytes <= last_given_->end || (report_global(address, bytes, kind, code), false);
    }
    if (memory::is_in_an_arena(address)) return report_global(address, bytes, kind, code), false;
    return address - launch->image() < image_bytes() && variable_at(address) != nullptr;
  }

  const Symbol* variable_at(std::uintptr_t address) const {
    const std::uintptr_t offset = address - launch->image();
    const Symbol* const symbol = ImageFacts::find(launch->facts().of_image(), offset);
    return symbol != nullptr && offset < symbol->end ? symbol : nullptr;
  }
  std::uintptr_t image_bytes() const {
    const auto& symbols = launch->facts().of_image();
    return symbols.empty() ? 0 : symbols.back().end;
  }

  // ---- reports

  std::string main_file() const { return launch->facts().lines().main_file(); }

  SourceLine line_of(std::uintptr_t code) const {
    return launch->facts().lines().find(code - launch->image() - 1);  // a return address lies behind its call
  }

  void add(KernelReport& report, std::initializer_list<std::string> what_is_the_same) {
    report.kernel = launch->kernel();
    std::string key = report.kernel;
    for (const std::string& each : what_is_the_same) key += "|" + each;
    kernel_reports().add(key, report);
  }

  static std::string key_of(std::uintptr_t code) { return std::to_string(code); }

  // Of an access by the thread that runs.
  void report_access(const char* check, std::uintptr_t address, std::uint64_t bytes, AccessKind kind,
                     std::uintptr_t code, const std::string& finding, const std::string& memory) {
    if (kernel_reports().knows(launch->kernel() + "|" + check + "|" + key_of(code))) return;
    KernelReport report;
    report.check = check;
    report.line = line_of(code);
    report.place = place_of(range_.block_index, linear_thread());
    report.what = std::string(verb_of(kind)) + " " + count_of(bytes, "byte") + " at " + hexadecimal(address) + finding;
    report.memory = memory;
    report.address = address;
    add(report, {check, key_of(code)});
  }

  void report_dynamic(std::uintptr_t offset_bytes, std::uintptr_t address, std::uint64_t bytes, AccessKind kind,
                      std::uintptr_t code) {
    if (!settings().checks.memory) return;
    const std::size_t asked = own_.of_launch->written.size();
    const std::string offset = "offset " + std::to_string(offset_bytes) + " of dynamic shared memory";
    if (asked == 0) {
      report_access("memory", address, bytes, kind, code, ", outside of shared memory",
                    offset + ", of which the launch asked for none");
    } else {
      report_access("memory", address, bytes, kind, code, ", outside of shared memory",
                    offset + ", of which the launch asked for " + count_of(asked, "byte"));
    }
  }

  void report_static(const Symbol& symbol, std::uintptr_t offset, std::uintptr_t address, std::uint64_t bytes,
                     AccessKind kind, std::uintptr_t code) {
    if (!settings().checks.memory) return;
    const Symbol* array = &symbol;
    if (array->kind == Symbol::Kind::gap) array = ImageFacts::find(launch->facts().of_threads(), symbol.begin - 1);
    std::string memory = "behind a shared variable";
    if (array != nullptr && array->kind == Symbol::Kind::shared) {
      memory = "offset " + std::to_string(offset - array->begin) + " of the shared variable " + array->name + " of " +
               count_of(array->end - array->begin, "byte");
    }
    report_access("memory", address, bytes, kind, code, ", outside of shared memory", memory);
  }

  std::string text_of_given(const GivenMemory& given) const {
    const std::string maker = known_memory()->maker(given.begin);
    return given.text + (maker.empty() ? "" : ", made at " + maker);
  }

  void report_global(std::uintptr_t address, std::uint64_t bytes, AccessKind kind, std::uintptr_t code) {
    if (!settings().checks.memory) return;
    const std::string freed = known_memory()->freed_at(address);
    const GivenMemory* const before = launch->memory().before(address);
    const GivenMemory* const behind = launch->memory().behind(address);
    constexpr std::uintptr_t near = 65536;
    std::string memory = "no memory that the driver has given out is near";
    if (before != nullptr && address < before->end) {
      memory = "offset " + std::to_string(address - before->begin) + " of " + text_of_given(*before) + ", over its end";
    } else if (!freed.empty()) {
      return report_access("memory", address, bytes, kind, code, ", which is freed", freed);
    } else if (before != nullptr && address - before->end < near) {
      memory = std::to_string(address - before->end) + " bytes behind " + text_of_given(*before);
    } else if (behind != nullptr && behind->begin - address < near) {
      memory = std::to_string(behind->begin - address) + " bytes before " + text_of_given(*behind);
    }
    report_access("memory", address, bytes, kind, code, ", outside of every allocation", memory);
  }

  std::string text_of(const Target& target, std::uintptr_t address) const {
    if (target.shared != nullptr) {
      const std::uintptr_t offset = address - target.shared->begin;
      const std::string owner =
          target.shared->block != order_.block() ? " of another block of the cluster" : std::string();
      if (target.is_dynamic) return "offset " + std::to_string(offset) + " of dynamic shared memory" + owner;
      const Symbol* const symbol = ImageFacts::find(launch->facts().of_threads(), offset);
      return "offset " + std::to_string(offset - symbol->begin) + " of the shared variable " + symbol->name + " of " +
             count_of(symbol->end - symbol->begin, "byte") + owner;
    }
    if (target.given != nullptr)
      return "offset " + std::to_string(address - target.given->begin) + " of " + text_of_given(*target.given);
    const Symbol* const symbol = variable_at(address);
    return "offset " + std::to_string(address - launch->image() - symbol->begin) + " of the variable " + symbol->name;
  }

  // ---- the checks

  void look_for_writes(const Target& target, std::uintptr_t address, std::uint64_t bytes, AccessKind kind,
                       std::uintptr_t code) {
    if (target.shared == nullptr && target.given == nullptr) return;
    if (kind == abi::access_read || kind == abi::access_atomic_read) {
      bool is_written = true;
      if (target.shared != nullptr) {
        const auto from = static_cast<std::ptrdiff_t>(address - target.shared->begin);
        const auto first = target.shared->written.begin() + from;
        is_written = std::find(first, first + static_cast<std::ptrdiff_t>(bytes), false) ==
                     first + static_cast<std::ptrdiff_t>(bytes);
      } else {
        is_written = target.given->is_written(address, address + bytes);
      }
      if (!is_written)
        report_access("init", address, bytes, kind, code, ", which nobody has written", text_of(target, address));
      return;
    }
    if (target.shared != nullptr) {
      const auto first = target.shared->written.begin() + static_cast<std::ptrdiff_t>(address - target.shared->begin);
      std::fill(first, first + static_cast<std::ptrdiff_t>(bytes), true);
    } else {
      target.given->note_write(address, address + bytes);
    }
  }

  void look_for_races(const Target& target, std::uint32_t thread, std::uintptr_t address, std::uint64_t bytes,
                      AccessKind kind, std::uintptr_t code) {
    const auto offset = static_cast<std::uint32_t>(code - launch->image());
    Cell other;
    std::uintptr_t raced_at = 0;
    for (std::uintptr_t at = address; at < address + bytes;) {
      const std::uintptr_t granule = at & ~(std::uintptr_t{granule_bytes} - 1);
      const std::uintptr_t end = std::min(granule + granule_bytes, address + bytes);
      const std::uint32_t mask = ((1u << (end - granule)) - 1) & ~((1u << (at - granule)) - 1);
      const Cell cell = order_.cell(thread, kind, mask, offset);
      if (touch_granule(target, granule, cell, other) && raced_at == 0) raced_at = at;
      at = end;
    }
    if (raced_at != 0) report_race(target, raced_at, bytes, kind, code, other);
  }

  bool touch_granule(const Target& target, std::uintptr_t granule, const Cell& cell, Cell& other) {
    if (target.shared != nullptr) {
      // Variables of threads begin at multiples of a granule, and so does dynamic memory.
      const std::uintptr_t first = target.shared->begin & ~(std::uintptr_t{granule_bytes} - 1);
      Granule& touched = target.shared->granules[(granule - first) / granule_bytes];
      for (Cell& each : touched.cells) {
        if (cluster_ == nullptr && each.block != cell.block) each = {};  // of a block that ended on this thread
      }
      return touch(touched, cell, order_, launch->releases(), other);
    }
    const std::uintptr_t number = granule / GlobalShadow::page_bytes;
    CachedPage& cached = pages_[number % pages_.size()];
    if (cached.number != number) cached = {number, launch->shadow().page(number)};
    if (cached.page == nullptr) return false;
    const std::lock_guard lock(cached.page->mutex);
    return touch(cached.page->granules[granule % GlobalShadow::page_bytes / granule_bytes], cell, order_,
                 launch->releases(), other);
  }

  void report_race(const Target& target, std::uintptr_t address, std::uint64_t bytes, AccessKind kind,
                   std::uintptr_t code, const Cell& other) {
    const std::uintptr_t other_code = launch->image() + other.code;
    const std::string one = key_of(std::min(code, other_code));
    const std::string two = key_of(std::max(code, other_code));
    if (kernel_reports().knows(launch->kernel() + "|races|" + one + "|" + two)) return;
    const bool is_of_block = other.block == order_.block();
    const bool is_of_warp = is_of_block && other.thread / 32 == linear_thread() / 32;
    KernelReport report;
    report.check = "races";
    report.line = line_of(code);
    report.place = place_of(range_.block_index, linear_thread());
    report.address = address;
    report.what = std::string(verb_of(kind)) + " " + count_of(bytes, "byte") + " at " + hexadecimal(address) +
                  ", which " + checking::text_of(place_of(other)) + " " + verb_of(other.access_kind()) + " at " +
                  line_of(other_code).text() + ", and nothing orders the two: " +
                  (is_of_warp    ? "they are lanes of one warp, and no __syncwarp lies between"
                   : is_of_block ? "no __syncthreads lies between"
                                 : "blocks of a launch have no order; both accesses must be atomic");
    report.memory = text_of(target, address);
    add(report, {"races", one, two});
  }

  struct CachedPage {
    std::uintptr_t number = 0;
    GlobalShadow::Page* page = nullptr;
  };

  abi::CheckedRange range_{};
  std::uint32_t threads_ = 0;
  std::uintptr_t of_threads_ = 0;
  std::size_t of_threads_bytes_ = 0;
  SharedWindows own_;
  bool is_in_cluster_ = false;
  std::uint64_t cluster_number_ = 0;
  ClusterMemory* cluster_ = nullptr;  // of the block that runs, once it has done anything
  BlockOrder order_;
  bool has_block_ = false;
  GivenMemory* last_given_ = nullptr;
  std::array<CachedPage, 64> pages_{};
};

// On the heap, for the reason that the recorder gives.
Runner& runner() {
  thread_local const auto made = std::make_unique<Runner>();
  return *made;
}

}  // namespace

LaunchChecker::LaunchChecker(const std::string& kernel, std::shared_ptr<const ImageFacts> facts, std::uintptr_t image,
                             std::shared_ptr<const MemoryList> memory)
    : kernel_(readable(kernel)), facts_(std::move(facts)), image_(image), memory_(std::move(memory)) {}

void LaunchChecker::enter() { runner().launch = this; }
void LaunchChecker::leave() { runner().launch = nullptr; }
void LaunchChecker::met_grid() {
  shadow_.clear();
  const std::lock_guard lock(clusters_mutex_);
  for (const auto& [number, cluster] : clusters_) {
    const std::lock_guard lock_of_cluster(cluster->mutex);
    for (const SharedWindows& each : cluster->blocks) {
      for (SharedMemory* window : {each.of_launch.get(), each.of_module.get()})
        std::fill(window->granules.begin(), window->granules.end(), Granule{});
    }
  }
}
ClusterMemory& LaunchChecker::cluster(std::uint64_t number) {
  const std::lock_guard lock(clusters_mutex_);
  auto& found = clusters_[number];
  if (!found) found = std::make_unique<ClusterMemory>();
  return *found;
}

void begin_checked_range(const abi::CheckedRange* range) {
  if (runner().launch != nullptr) runner().begin(*range);
}

void check_access(const void* address, std::uint64_t bytes, abi::AccessKind kind, const void* code) {
  if (settings().checks.races) record_access(address, bytes, kind);
  runner().access(reinterpret_cast<std::uintptr_t>(address), bytes, kind, reinterpret_cast<std::uintptr_t>(code));
}

void note_meeting(abi::Meeting meeting, std::uint32_t warp, std::uint32_t lanes) {
  runner().meet(meeting, warp, lanes);
}

void report_meeting(std::uint32_t thread, std::int32_t line, const char* message) {
  runner().report_meeting(thread, line, message);
}

void report_misaligned(const void* address, std::uint64_t bytes, abi::AccessKind kind, const void* code) {
  runner().report_misaligned(reinterpret_cast<std::uintptr_t>(address), bytes, kind,
                             reinterpret_cast<std::uintptr_t>(code));
}

}  // namespace aiocuda::emulator::checking
