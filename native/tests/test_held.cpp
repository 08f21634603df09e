// Calls held back: which orders are possible, and what a refusal takes with it.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "dataflow/held.hpp"

using namespace aiocuda::dataflow;

namespace {

using Call = HeldCall<int>;  // the work is its place among all calls

Call work(StreamIndex stream, std::uint64_t count, int place) { return {HeldKind::work, stream, count, place, 0, 0}; }
Call mark(StreamIndex stream, std::uint64_t count, std::uint32_t slot) {
  return {HeldKind::mark, stream, count, 0, 0, slot};
}
Call wait(StreamIndex stream, std::uint64_t count, StreamIndex other, std::uint32_t slot) {
  return {HeldKind::wait, stream, count, 0, other, slot};
}

}  // namespace

TEST_CASE("streams get their work in turn, each in its order") {
  HeldCalls<int> held;
  for (StreamIndex stream : {0u, 1u, 2u})
    for (std::uint64_t i = 1; i <= 3; ++i) held.add(work(stream, i, 0));
  std::vector<std::pair<StreamIndex, std::uint64_t>> made;
  const auto lost = held.make_all([&](const Call& call) {
    made.emplace_back(call.stream, call.count);
    return true;
  });
  CHECK(lost.empty());
  CHECK(held.empty());
  CHECK(made == std::vector<std::pair<StreamIndex, std::uint64_t>>{
                    {0, 1}, {1, 1}, {2, 1}, {0, 2}, {1, 2}, {2, 2}, {0, 3}, {1, 3}, {2, 3}});
}

TEST_CASE("points are taken right before their work and right behind it, and take no turn of their own") {
  HeldCalls<int> held;
  for (StreamIndex stream : {0u, 1u})
    for (std::uint64_t i = 1; i <= 2; ++i) {
      held.add({HeldKind::point_before, stream, i, -1, 0, 0});
      held.add(work(stream, i, 0));
      held.add({HeldKind::point_behind, stream, i, 1, 0, 0});
    }
  std::vector<std::tuple<StreamIndex, std::uint64_t, int>> made;
  const auto lost = held.make_all([&](const Call& call) {
    made.emplace_back(call.stream, call.count, call.work);
    return !(call.stream == 1 && call.count == 1 && call.kind == HeldKind::work);
  });
  CHECK(lost == std::map<StreamIndex, std::uint64_t>{{1, 1}});
  CHECK(made == std::vector<std::tuple<StreamIndex, std::uint64_t, int>>{{0, 1, -1},
                                                                         {0, 1, 0},
                                                                         {0, 1, 1},
                                                                         {1, 1, -1},
                                                                         {1, 1, 0},
                                                                         {1, 1, 1},
                                                                         {0, 2, -1},
                                                                         {0, 2, 0},
                                                                         {0, 2, 1},
                                                                         {1, 2, -1},
                                                                         {1, 2, 1}});
}

TEST_CASE("what is refused takes with it what comes after it on its stream, and what waits for that") {
  HeldCalls<int> held;
  held.add(work(0, 1, 0));
  held.add(mark(0, 2, 0));  // before the one that is refused
  held.add(work(0, 2, 1));  // refused
  held.add(mark(0, 3, 1));
  held.add(work(0, 3, 2));
  held.add(wait(1, 1, 0, 0));
  held.add(work(1, 1, 3));
  held.add(wait(1, 2, 0, 1));
  held.add(work(1, 2, 4));
  held.add(work(2, 1, 5));
  std::set<int> made;
  int marks = 0, waits = 0;
  const auto lost = held.make_all([&](const Call& call) {
    marks += call.kind == HeldKind::mark;
    waits += call.kind == HeldKind::wait;
    if (call.kind == HeldKind::work) made.insert(call.work);
    return !(call.kind == HeldKind::work && call.work == 1);
  });
  CHECK(made == std::set<int>{0, 1, 3, 5});
  CHECK(marks == 2);
  CHECK(waits == 2);
  CHECK(lost == std::map<StreamIndex, std::uint64_t>{{0, 2}, {1, 2}});
}

TEST_CASE("random programs: every order that was decided is kept, with few marks used again and again") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    const StreamIndex streams = 1 + below(5);
    const std::uint32_t slots = 1 + below(2);
    const int refused = below(3) == 0 ? static_cast<int>(below(80)) : -1;
    HeldCalls<int> held;
    std::vector<std::uint64_t> counts(streams, 0);
    std::map<std::pair<StreamIndex, std::uint32_t>, int> marked;  // the mark's place
    std::vector<Call> calls;
    std::vector<std::set<int>> before;  // by place: what must come first
    std::vector<int> last(streams, -1);
    std::map<int, std::vector<int>> waits_of;  // of a mark
    for (int place = 0; place < 80; ++place) {
      const StreamIndex stream = below(streams);
      Call call = work(stream, counts[stream] + 1, place);
      std::set<int> first;
      if (last[stream] >= 0) first.insert(last[stream]);
      const std::uint32_t slot = below(slots);
      const auto other = marked.find({below(streams), slot});
      switch (below(4)) {
        case 0: {
          call = mark(stream, counts[stream] + 1, slot);
          if (const auto earlier = marked.find({stream, slot}); earlier != marked.end())
            for (const int waiting : waits_of[earlier->second]) first.insert(waiting);
          marked[{stream, slot}] = place;
          break;
        }
        case 1:
          if (other != marked.end() && other->first.first != stream) {
            call = wait(stream, counts[stream] + 1, other->first.first, slot);
            first.insert(other->second);
            waits_of[other->second].push_back(place);
            break;
          }
          [[fallthrough]];
        default:
          ++counts[stream];
      }
      call.work = place;
      last[stream] = place;
      before.push_back(std::move(first));
      calls.push_back(call);
      held.add(call);
    }
    std::set<int> made;
    const auto lost = held.make_all([&](const Call& call) {
      for (const int first : before[static_cast<std::size_t>(call.work)]) {
        const Call& earlier = calls[static_cast<std::size_t>(first)];
        CHECK((made.contains(first) || (earlier.kind == HeldKind::work && refused >= 0)));  // what was lost is left out
      }
      made.insert(call.work);
      return call.work != refused || call.kind != HeldKind::work;
    });
    // A call that was left out is lost, and calls behind a lost one are left out.
    std::set<int> spoilt;
    for (int place = 0; place < 80; ++place) {
      const Call& call = calls[static_cast<std::size_t>(place)];
      const bool is_refused = place == refused && call.kind == HeldKind::work;
      bool is_spoilt = is_refused;
      for (const int first : before[static_cast<std::size_t>(place)]) {
        const Call& earlier = calls[static_cast<std::size_t>(first)];
        const bool is_order_only =
            earlier.kind == HeldKind::wait && call.kind == HeldKind::mark && earlier.stream != call.stream;
        is_spoilt = is_spoilt || (spoilt.contains(first) && !is_order_only);
      }
      if (is_spoilt) spoilt.insert(place);
      if (call.kind != HeldKind::work) continue;
      CHECK(made.contains(place) == (!is_spoilt || is_refused));
      const auto from = lost.find(call.stream);
      CHECK((from != lost.end() && call.count >= from->second) == is_spoilt);
    }
  }
}
