// Things that the device passes and the program waits for as such: all that some streams hold, or an event.
//
// Always true: waiting for it makes no stream. Nothing is armed that passes while its waiter looks. Guarded by the GIL.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "event.hpp"
#include "host_wait.hpp"

namespace aiocuda::driver {

class Passing {
 public:
  explicit Passing(Engine& engine) : engine_(engine) {}
  Passing(const Passing&) = delete;
  Passing& operator=(const Passing&) = delete;
  virtual ~Passing() = default;

  // Asks the driver. Raises.
  virtual bool has_passed() = 0;
  // A completion that ends when it has passed; none if it has, or does while this thread looks for so long. Raises.
  virtual CompletionRef wait(std::chrono::microseconds budget) = 0;
  // The thing that somebody waits for, in words; its device.
  virtual std::string asked() const = 0;
  virtual std::int32_t device() const = 0;
  // The streams that a time-out's error names, where they still hold work.
  virtual std::vector<dataflow::StreamId> named() const = 0;

  // The wait has ended: raises the error that it ended with, if it did. False: there is more to wait for.
  virtual bool has_come(std::int32_t error);
  // Waits without the GIL. False: `timeout_s` (negative: none) passed first. Raises.
  bool block(double timeout_s);

 protected:
  Engine& engine_;
};

// All that some streams hold when it is waited for, whoever submitted it. A device that is not open has no streams:
// what is waited for is that another thread has opened it.
class StreamsPassing : public Passing {
 public:
  // `device`: that of the streams, if there are none yet.
  StreamsPassing(Engine& engine, std::vector<dataflow::StreamId> streams, std::string asked, std::int32_t device);

  bool has_passed() override;
  CompletionRef wait(std::chrono::microseconds budget) override;
  bool has_come(std::int32_t error) override;
  std::string asked() const override { return asked_; }
  std::int32_t device() const override { return device_; }
  std::vector<dataflow::StreamId> named() const override { return streams_; }

 private:
  const std::vector<dataflow::StreamId> streams_;
  const std::string asked_;
  const std::int32_t device_;
  nb::object opening_;  // a HostWork: the device is being opened

  bool is_open();
};

class EventPassing final : public Passing {
 public:
  // `where`: such as "on stream 3 of device 0", that of the stream, if it is this process'.
  EventPassing(Engine& engine, std::shared_ptr<const Event> event, std::string where, dataflow::StreamId stream)
      : Passing(engine), event_(std::move(event)), where_(std::move(where)), stream_(stream) {}

  const Event& event() const { return *event_; }
  const std::string& where() const { return where_; }
  std::string title() const { return "an event " + where_; }

  bool has_passed() override;
  CompletionRef wait(std::chrono::microseconds budget) override;
  std::string asked() const override { return "waiting for " + title(); }
  std::int32_t device() const override { return event_->device(); }
  std::vector<dataflow::StreamId> named() const override;

 private:
  const std::shared_ptr<const Event> event_;
  const std::string where_;
  const dataflow::StreamId stream_;
};

// Those of some streams that still hold work, whoever submitted it, or that are broken.
std::vector<dataflow::StreamId> streams_at_work(Engine& engine, const std::vector<dataflow::StreamId>& streams);

}  // namespace aiocuda::driver
