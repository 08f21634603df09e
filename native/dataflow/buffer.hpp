// A byte range of memory with an owner. Knows neither Python nor CUDA.
//
// Always true: the owner gets the range back exactly once, when nothing holds it any more, with the
// hazards that say which work still uses it. Counts are guarded by the GIL.
#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "ownership.hpp"

namespace aiocuda::dataflow {

inline constexpr std::int32_t host_ordinal = -1;
inline constexpr std::int32_t unknown_ordinal = -2;

// The size of a buffer that stands for all memory of one kind that is somebody else's: its bytes are named by address.
inline constexpr std::uint64_t address_space_bytes = std::numeric_limits<std::uint64_t>::max();

struct Buffer;
class Doubts;
struct Token;

// The kinds of memory: they say where it comes from, and how it goes back.
enum class MemoryKind : std::uint8_t {
  ordinary,      // a device's, in the order of its streams; page-locked for the host
  managed,       // the host and all devices reach it; it counts with the device that it was made for
  interprocess,  // a device's, which other processes may open
  opened,        // a device's, of another process
  image,         // a loaded image: its address is the driver's handle of it
};

// The graph that a buffer belongs to. Until the graph is made, operations that go into it use its arrays. After that
// nobody else does.
class Enclosure {
 public:
  virtual ~Enclosure() = default;
  // Gives a buffer its address before the whole is laid out.
  virtual void pin(Buffer& buffer) = 0;
  // May an array of it be used here? The operations that are built are not yet anywhere. Operations of a part may use
  // arrays of the graph around it.
  bool admits() const { return is_open && (entered == this || entered == anywhere() || (entered && entered->is_part)); }

  // The graph whose operations are recorded now on this thread, or null.
  static const Enclosure* recording() { return entered == anywhere() ? nullptr : entered; }

  bool is_open = true;
  bool is_part = false;  // it may become a part of a graph that is being made
  std::string place;     // where the graph is made, as "file:line"

  // The graph whose operations the walk visits now, on this thread.
  class Entered {
   public:
    explicit Entered(const Enclosure* enclosure) : before_(std::exchange(entered, enclosure)) {}
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;
    ~Entered() { entered = before_; }
    // The graph that was recorded before, or the one around it.
    const Enclosure* before() const { return before_ == anywhere() ? around_ : before_; }

   private:
    const Enclosure* before_;
  };

  // While it lives, what is built and recorded on this thread is apart from the graph that was recorded there.
  class Apart {
   public:
    Apart() : entered_(anywhere()), before_(std::exchange(around_, entered_.before())) {}
    Apart(const Apart&) = delete;
    Apart& operator=(const Apart&) = delete;
    ~Apart() { around_ = before_; }

   private:
    const Entered entered_;
    const Enclosure* before_;
  };
  // The graph that was recorded on this thread when something apart was begun, or null.
  static const Enclosure* around() { return around_; }

  // Stands for "no walk is going on here", as in a callback; null for a walk of those that are in no graph.
  static const Enclosure* anywhere() { return reinterpret_cast<const Enclosure*>(&anywhere_); }

 private:
  static constexpr char anywhere_ = 0;
  static inline thread_local const Enclosure* entered = reinterpret_cast<const Enclosure*>(&anywhere_);
  static inline thread_local const Enclosure* around_ = nullptr;
};

// The maker of a buffer, for messages: an object and a number in it, which Origin can read. Kept with the buffer.
class Maker {
 public:
  using LetGo = void (*)(void*);
  Maker() = default;
  Maker(void* object, int number, LetGo let_go) : object_(object), number_(number), let_go_(let_go) {}
  Maker(Maker&& other) noexcept
      : object_(std::exchange(other.object_, nullptr)), number_(other.number_), let_go_(other.let_go_) {}
  Maker& operator=(Maker&& other) noexcept {
    std::swap(object_, other.object_);
    std::swap(number_, other.number_);
    std::swap(let_go_, other.let_go_);
    return *this;
  }
  ~Maker() {
    if (object_) let_go_(object_);
  }
  void* object() const { return object_; }
  int number() const { return number_; }

 private:
  void* object_ = nullptr;
  int number_ = 0;
  LetGo let_go_ = nullptr;
};

class MemoryOwner {
 public:
  virtual ~MemoryOwner() = default;
  virtual void take_back(std::unique_ptr<Buffer> buffer) noexcept = 0;
};

struct Buffer {
  explicit Buffer(std::uint64_t size = 0, std::int32_t where = host_ordinal, MemoryKind of_kind = MemoryKind::ordinary)
      : size_bytes(size), device(where), kind(of_kind), hazards(size) {}

  std::uint64_t address = 0;
  std::uint8_t residue = 0;  // where it has no address yet: how far that will be beyond a multiple of 256
  const std::uint64_t size_bytes;
  const std::int32_t device;  // ordinal, or host_ordinal for page-locked memory
  const MemoryKind kind;
  MemoryOwner* owner = nullptr;  // outlives every buffer; null: nothing to give back
  RangeHazards hazards;
  std::unique_ptr<Claims> claims;        // once somebody made one
  std::shared_ptr<Enclosure> enclosure;  // of memory inside a graph
  Maker maker;                           // unknown for memory on a copy's way, and for what is somebody else's
  std::uint32_t holders = 0;
  bool is_lent = false;      // to another library, or was: an access must ask for its borrows
  bool is_in_doubt = false;  // some of it is, or was
  std::shared_ptr<Doubts> doubts;
  std::shared_ptr<const Token> token;  // of a group of devices, whose calls it orders; it takes on no doubts of others

  // Must an access be told to others?
  bool is_watched() const { return is_lent || is_in_doubt; }

  bool is_address_space() const { return size_bytes == address_space_bytes; }
  // Its address, or as far as that matters to alignment.
  std::uint64_t place() const { return address ? address : residue; }

  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (previous) previous->next = next;
    if (next) next->previous = previous;
  }
  // The owner's list of buffers.
  Buffer *previous = nullptr, *next = nullptr;
  void insert_after(Buffer& head) {
    previous = &head;
    next = head.next;
    head.next = this;
    if (next) next->previous = this;
  }
};

class BufferRef {
 public:
  BufferRef() = default;
  explicit BufferRef(std::unique_ptr<Buffer> buffer) : buffer_(buffer.release()) { ++buffer_->holders; }
  static BufferRef another(Buffer& held) {  // of a buffer that somebody holds
    BufferRef ref;
    ref.buffer_ = &held;
    ++held.holders;
    return ref;
  }
  BufferRef(const BufferRef& other) : buffer_(other.buffer_) {
    if (buffer_) ++buffer_->holders;
  }
  BufferRef(BufferRef&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}
  BufferRef& operator=(BufferRef other) noexcept {
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  ~BufferRef() { reset(); }

  void reset() {
    Buffer* gone = std::exchange(buffer_, nullptr);
    if (!gone || --gone->holders) return;
    std::unique_ptr<Buffer> last(gone);
    if (last->owner && last->address) {
      MemoryOwner* owner = last->owner;
      owner->take_back(std::move(last));
    }
  }

  Buffer* get() const { return buffer_; }
  Buffer* operator->() const { return buffer_; }
  Buffer& operator*() const { return *buffer_; }
  explicit operator bool() const { return buffer_ != nullptr; }

 private:
  Buffer* buffer_ = nullptr;
};

}  // namespace aiocuda::dataflow
