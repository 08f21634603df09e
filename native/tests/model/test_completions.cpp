// Completions, what is pending, and ports: in every order of what their threads do (see scheduler.hpp).
#include "shadow_std.hpp"

#include <poll.h>

#include "completion/completion.hpp"
// after the shadows: doctest uses the standard library's own
#include "check_orders.hpp"

namespace aiocuda::completion {
namespace {

using model::require;

Token token(std::uintptr_t number) { return reinterpret_cast<Token>(number); }

bool is_readable(int fd) {
  pollfd asked{fd, POLLIN, 0};
  return ::poll(&asked, 1, 0) == 1;
}

void check_all(const std::function<void()>& program, model::Limits limits = {}) {
  limits.deviations = 4;
  model::check_orders(program, limits);
}

// A loop that takes from a port until it has had so many tokens.
std::vector<Port::Due> take_all(Port& port, std::size_t count) {
  std::vector<Port::Due> all;
  while (all.size() < count) {
    model::wait_until("the loop sleeps", [&] { return is_readable(port.fd()); });
    for (const Port::Due& due : port.take()) all.push_back(due);
  }
  return all;
}

}  // namespace

TEST_CASE("a completion ends once, and tells each token once, with the first error") {
  check_all([] {
    Orphans orphans;
    const auto port = std::make_shared<Port>(orphans);
    Completion completion(2);
    std::thread one([&] { completion.part_done(0); });
    std::thread other([&] { completion.part_done(5); });
    const bool is_taken = completion.tell(port, token(1));
    one.join();
    other.join();
    require(completion.has_ended(), "it has not ended");
    require(completion.error() == 5, "it ended with another error");
    const auto due = port->take();
    require(due.size() == (is_taken ? 1 : 0), "a token was told twice, or not at all");
    require(due.empty() || due[0].result == 5, "a token was told another error");
    require(!completion.withdraw(token(1)), "a token that was told was withdrawn");
  });
}

TEST_CASE("of two errors the first is a completion's, for whoever asks and whoever is told") {
  check_all([] {
    Orphans orphans;
    const auto port = std::make_shared<Port>(orphans);
    Completion completion(2);
    completion.tell(port, token(1));
    std::thread one([&] { completion.part_done(3); });
    std::thread other([&] { completion.part_done(5); });
    one.join();
    other.join();
    const auto due = port->take();
    require(due.size() == 1, "a token was told twice, or not at all");
    require(due[0].result == completion.error(), "a token was told another error");
  });
}

TEST_CASE("a token is either told or withdrawn") {
  check_all([] {
    Orphans orphans;
    const auto port = std::make_shared<Port>(orphans);
    Completion completion(1);
    const bool is_taken = completion.tell(port, token(1));
    std::thread device([&] { completion.part_done(0); });
    const bool is_withdrawn = completion.withdraw(token(1));
    device.join();
    require(is_taken, "it had ended before anything passed");
    require(port->take().size() == (is_withdrawn ? 0 : 1), "a token was told and withdrawn, or neither");
  });
}

TEST_CASE("who waits for a completion in a thread is woken without a time-out") {
  model::Limits limits;
  limits.on_time_out = [] { return ::std::string("nobody woke it"); };
  check_all(
      [] {
        Completion completion(2);
        std::thread one([&] { completion.part_done(0); });
        std::thread other([&] { completion.part_done(0); });
        require(completion.wait_for(std::chrono::milliseconds(100)), "it was not told");
        one.join();
        other.join();
      },
      limits);
}

TEST_CASE("what is pending wakes who has nothing to do, and so does the end") {
  check_all([] {
    Pending pending;
    int told = 0;
    std::thread reactor([&] {
      while (pending.wait_until_busy()) {
        pending.done(1);
        ++told;
      }
    });
    const auto completion = std::make_shared<Completion>(1);
    require(pending.add({completion, 0, {}, {}}) == 1, "it has another number");
    model::wait_until("the caller waits", [&] { return pending.size() == 0; });
    pending.stop();
    reactor.join();
    require(completion->has_ended() && told == 1, "it was not ended");
  });
}

TEST_CASE("a part ends once, by whoever comes first: the device, a broken stream, or its owner") {
  check_all([] {
    Pending pending;
    int passed = 0;
    const auto completion = std::make_shared<Completion>(1);
    const auto number = pending.add({completion, 3, [&] { return ++passed, 0; }, {}});
    std::thread device([&] { pending.done(number); });
    std::thread broken([&] { pending.fail_stream(3, 700); });
    pending.withdraw(number);
    device.join();
    broken.join();
    require(passed <= 1, "what is to be done when it has passed was done twice");
    require(passed == 0 || completion->error() == 0, "it has passed, and failed");
    require(pending.size() == 0, "it is still pending");
  });
}

TEST_CASE("a loop that sleeps until its port is readable gets every token once, from whoever puts it") {
  check_all([] {
    Orphans orphans;
    Port port(orphans);
    std::thread one([&] {
      port.put(token(1), 0);
      port.put(token(2), 0);
    });
    std::thread other([&] { port.put(token(3), 9); });
    const auto all = take_all(port, 3);
    one.join();
    other.join();
    require(all.size() == 3 && port.take().empty(), "there were more tokens than were put");
    const auto place = [&](std::uintptr_t number) {
      return std::find_if(all.begin(), all.end(), [&](const Port::Due& due) { return due.token == token(number); });
    };
    require(place(1) < place(2) && place(3) != all.end(), "a token was lost, or two of one thread changed places");
    require(place(3)->result == 9, "a token has another's result");
  });
}

TEST_CASE("a port that is closed meanwhile gives up each token once, to the loop or to the orphans") {
  check_all([] {
    Orphans orphans;
    Port port(orphans);
    std::thread one([&] {
      port.put(token(1), 0);
      port.put(token(2), 0);
    });
    const auto taken = port.take().size();
    port.close();
    one.join();
    require(taken + orphans.take().size() == 2, "a token was lost, or came twice");
    require(port.take().empty(), "a closed port gave out a token");
  });
}

}  // namespace aiocuda::completion
