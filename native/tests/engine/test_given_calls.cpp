// Executions whose calls a thread of its own makes: as if the walk had made them, also where the driver refuses.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "random_programs.hpp"
#include "whole_engine.hpp"

using namespace aiocuda::driver;
using namespace aiocuda::driver::tests;
namespace dataflow = aiocuda::dataflow;
namespace nb = nanobind;
using aiocuda::dataflow::State;

namespace {

// Each stream's work in its order, without allocations, which are made at once, and frees: an operation that is kept
// until its work was made may hold an array longer.
std::map<CUstream, std::vector<std::string>> work_of(const FakeDriver& driver) {
  std::map<CUstream, std::vector<std::string>> found;
  for (const FakeDriver::Work& each : driver.work()) {
    if (each.function == Function::cuMemAllocFromPoolAsync || each.function == Function::cuMemFreeAsync) continue;
    std::string text = name_of(each.function);
    for (const auto& [address, writes] : touched(each)) text += (writes ? " w" : " r") + std::to_string(address);
    found[each.stream].push_back(text);
  }
  return found;
}

// Fills and copies of arrays that are there, in the order of their submission.
struct Program {
  struct Step {
    nb::object op;
    std::size_t writes;
    std::optional<std::size_t> reads;
  };
  Program(WholeEngine& engine, std::mt19937& random, std::size_t count) {
    auto any = [&] { return static_cast<std::size_t>(random() % engine.arrays.size()); };
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t writes = any(), reads = any();
      if (random() % 2 || reads == writes)
        steps.push_back({engine.fill(engine.arrays[writes]), writes, std::nullopt});
      else
        steps.push_back({engine.copy(engine.arrays[writes], engine.arrays[reads]), writes, reads});
    }
  }
  nb::object root(WholeEngine& engine) const {
    std::vector<nb::object> ops;
    for (const Step& step : steps) ops.push_back(step.op);
    return engine.gather(ops);
  }
  // The steps that are lost if one of them is refused: those that touch what lost ones were to write.
  std::set<std::size_t> lost_with(std::size_t refused) const {
    std::set<std::size_t> lost{refused}, arrays{steps[refused].writes};
    for (std::size_t i = refused + 1; i < steps.size(); ++i) {
      if (!arrays.contains(steps[i].writes) && !(steps[i].reads && arrays.contains(*steps[i].reads))) continue;
      lost.insert(i);
      arrays.insert(steps[i].writes);
    }
    return lost;
  }

  std::vector<Step> steps;
};

void make_arrays(WholeEngine& engine, int count) {
  for (int i = 0; i < count; ++i) engine.arrays.push_back(engine.array(array_bytes));
  CHECK_FALSE(engine.run(engine.fill(engine.arrays[0])));
  engine.driver.forget_calls();
}

}  // namespace

TEST_CASE("random programs: each stream gets what it would get of the walk, in the same order") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    std::vector<std::map<CUstream, std::vector<std::string>>> found;
    for (const ThreadUse use : {ThreadUse::never, ThreadUse::automatic, ThreadUse::always}) {
      std::mt19937 random(seed);
      WholeEngine engine(3, use);
      for (int i = 0; i < 3; ++i) engine.arrays.push_back(engine.array(array_bytes, 0, complex));
      CHECK_FALSE(engine.run(engine.fill(engine.arrays[0], 16)));
      engine.now_drained();
      engine.hold();
      engine.driver.forget_calls();
      std::vector<nb::object> kept;
      for (int round = 0; round < 4; ++round) {
        kept.push_back(random_program(engine, random));
        CHECK_FALSE(engine.execution(kept.back())->submit_more());
      }
      engine.now_drained();
      CHECK(first_race(engine.driver) == "");
      CHECK(engine.left_behind() == "");
      found.push_back(work_of(engine.driver));
    }
    CHECK(found[0] == found[1]);
    CHECK(found[0] == found[2]);
  }
}

TEST_CASE("random programs: whichever piece of work is refused, it and what depends on it is lost, and nothing else") {
  std::size_t refused_count = 0, dependent_count = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    WholeEngine engine(3, ThreadUse::always);
    make_arrays(engine, 5);
    const Program program(engine, random, 3 + random() % 12);
    const Function function = random() % 2 ? Function::cuMemsetD8Async : Function::cuMemcpyAsync;
    engine.driver.refuse(function, CUDA_ERROR_INVALID_VALUE, 1 + random() % 4);
    const auto raised = engine.run(program.root(engine));
    if (!raised) continue;
    ++refused_count;
    CHECK(raised->kind == "refused");
    CHECK(raised->code == CUDA_ERROR_INVALID_VALUE);
    CHECK(raised->function == name_of(function));
    const auto refused = std::find_if(program.steps.begin(), program.steps.end(),
                                      [&](const Program::Step& step) { return raised->is_for(step.op); });
    REQUIRE(refused != program.steps.end());
    const auto lost = program.lost_with(static_cast<std::size_t>(refused - program.steps.begin()));
    dependent_count += lost.size() - 1;
    for (std::size_t i = 0; i < program.steps.size(); ++i) {
      CAPTURE(i);
      CHECK((op_of(program.steps[i].op).state == State::failed) == lost.contains(i));
    }
    CHECK(first_race(engine.driver) == "");
    engine.driver.refuse_no_more();
    CHECK_FALSE(engine.run(engine.fill(engine.arrays[0])));  // the loss is over
    CHECK(engine.left_behind() == "");
  }
  CHECK(refused_count > 100);
  CHECK(dependent_count > 100);
}

TEST_CASE("submit() raises what the driver refuses, as it does where the walk makes the calls") {
  for (const ThreadUse use : {ThreadUse::never, ThreadUse::automatic, ThreadUse::always}) {
    WholeEngine engine(3, use);
    make_arrays(engine, 2);
    engine.driver.refuse(Function::cuMemsetD8Async, CUDA_ERROR_INVALID_VALUE, 1);
    const nb::object op = engine.fill(engine.arrays[0]);
    const auto raised = engine.submit(op);
    REQUIRE(raised);
    CHECK(raised->function == "cuMemsetD8Async");
    CHECK(raised->is_for(op));
    CHECK(op_of(op).state == State::failed);
    CHECK(engine.left_behind() == "");
  }
}

TEST_CASE("an operation that only passes lost results on ends with the same error, however late it is asked") {
  WholeEngine engine(3, ThreadUse::always);
  make_arrays(engine, 3);
  engine.driver.refuse(Function::cuMemsetD8Async, CUDA_ERROR_INVALID_VALUE, 1);
  const nb::object lost = engine.fill(engine.arrays[0]), well = engine.fill(engine.arrays[1]);
  const nb::object both = engine.gather({lost, well}), one = engine.pick(both, 0), other = engine.pick(both, 1);
  int calls = 0;
  const nb::object mapped = engine.map(lost, nb::cpp_function([&calls](nb::object value) {
                                         ++calls;
                                         return value;
                                       }));
  std::atomic<bool> is_given = false;  // the call is refused when both have been submitted
  const std::thread::id own = std::this_thread::get_id();
  engine.driver.set_before_call([&](Function) {
    while (std::this_thread::get_id() != own && !is_given) std::this_thread::yield();
  });
  engine.execution(both)->submit_more();
  engine.execution(one)->submit_more();
  is_given = true;
  engine.now_drained();
  CHECK(engine.run(mapped)->is_for(lost));
  CHECK(calls == 0);
  CHECK(engine.run(both)->is_for(lost));
  CHECK(engine.run(one)->is_for(lost));
  CHECK(engine.run(other)->is_for(lost));  // of a whole that has failed
  CHECK_FALSE(engine.run(well));
  CHECK(engine.left_behind() == "");
}

TEST_CASE("a result of several pieces of work is lost with each of them, whichever streams they are on") {
  for (const std::uint32_t streams : {1u, 3u}) {
    for (std::size_t refused = 0; refused < 3; ++refused) {
      for (const bool is_pick : {false, true}) {
        CAPTURE(streams);
        CAPTURE(refused);
        CAPTURE(is_pick);
        WholeEngine engine(streams, ThreadUse::always);
        make_arrays(engine, 3);
        engine.now_drained();
        engine.driver.refuse(Function::cuMemsetD8Async, CUDA_ERROR_INVALID_VALUE, refused + 1);
        std::vector<nb::object> fills;
        for (int i = 0; i < 3; ++i) fills.push_back(engine.fill(engine.arrays[static_cast<std::size_t>(i)]));
        const nb::object all = engine.gather(fills), more = engine.gather({all, fills[0]});
        const nb::object op = is_pick ? engine.pick(engine.pick(more, 0), 1) : more;
        const auto raised = engine.run(op);
        REQUIRE(raised);
        CHECK(raised->function == "cuMemsetD8Async");
        CHECK(op_of(op).state == State::failed);
        CHECK(engine.left_behind() == "");
      }
    }
  }
}

TEST_CASE("memory that operations on their way hold is had back before there is none") {
  WholeEngine engine(3, ThreadUse::always);
  make_arrays(engine, 1);
  engine.execution(engine.create(4096, 0, 4))->submit_more();  // nobody wants the result
  engine.now_drained();
  const std::size_t before = engine.driver.count(Function::cuMemFreeAsync);
  engine.driver.refuse(Function::cuMemAllocFromPoolAsync, CUDA_ERROR_OUT_OF_MEMORY, 1);
  std::size_t freed = 0;
  engine.driver.set_before_call([&](Function function) {
    if (function == Function::cuMemAllocFromPoolAsync) freed = engine.driver.count(Function::cuMemFreeAsync) - before;
  });
  CHECK_FALSE(engine.run(engine.create(64, 0, 4)));
  CHECK(freed == 1);  // when it was asked for the last time
  CHECK(engine.left_behind() == "");
}

TEST_CASE("has_passed is true of lost work, and tells that it failed") {
  WholeEngine engine(3, ThreadUse::always);
  make_arrays(engine, 1);
  engine.driver.refuse(Function::cuMemsetD8Async, CUDA_ERROR_INVALID_VALUE, 1);
  const nb::object op = engine.fill(engine.arrays[0]);
  engine.execution(op)->submit_more();
  engine.now_drained();
  CHECK(has_passed(engine.engine, op));
  CHECK(op_of(op).state == State::failed);
}

TEST_CASE("an await whose flag, mark or wait is refused for good ends with the loss of the device") {
  for (const Function refused :
       {Function::cuStreamWriteValue32, Function::cuEventRecord, Function::cuStreamWaitEvent}) {
    CAPTURE(name_of(refused));
    WholeEngine engine(3, ThreadUse::always);
    make_arrays(engine, 4);
    engine.hold();
    engine.driver.refuse(refused, CUDA_ERROR_OUT_OF_MEMORY, 1, 1000);
    // Branches that meet: marks, waits and a flag.
    std::vector<nb::object> fills;
    for (int i = 0; i < 4; ++i) fills.push_back(engine.fill(engine.arrays[static_cast<std::size_t>(i)]));
    const nb::object root = engine.launch(fills, {});
    const auto raised = engine.run(root);
    REQUIRE(raised);
    CHECK((raised->kind == "lost" || raised->kind == "refused"));
    CHECK(raised->code == CUDA_ERROR_UNKNOWN);
    engine.go_on();
  }
}

TEST_CASE("whichever order is refused a few times, nothing is lost") {
  for (const Function refused : {Function::cuStreamWriteValue32, Function::cuEventRecord, Function::cuStreamWaitEvent,
                                 Function::cuMemFreeAsync}) {
    CAPTURE(name_of(refused));
    for (unsigned seed = 0; seed < 40; ++seed) {
      std::mt19937 random(seed);
      WholeEngine engine(3, ThreadUse::always);
      for (int i = 0; i < 3; ++i) engine.arrays.push_back(engine.array(array_bytes, 0, complex));
      CHECK_FALSE(engine.run(engine.fill(engine.arrays[0], 16)));
      engine.driver.refuse(refused, CUDA_ERROR_OUT_OF_MEMORY, 1 + random() % 6, 1 + random() % 15);
      for (int round = 0; round < 4; ++round) CHECK_FALSE(engine.run(random_program(engine, random)));
      engine.settle();
      CHECK(engine.left_behind() == "");
    }
  }
}

TEST_CASE("the driver gets no call that needs its real state before the calls that were given") {
  WholeEngine engine(3, ThreadUse::always);
  std::atomic<int> early = 0, asked = 0;
  engine.driver.set_before_call([&](Function function) {
    static const std::set<Function> at_once{
        Function::cuGraphLaunch,       Function::cuGraphUpload,       Function::cuStreamBeginCapture,
        Function::cuStreamSynchronize, Function::cuStreamWaitValue32, Function::cuLaunchHostFunc,
        Function::cuStreamDestroy,     Function::cuMemPrefetchAsync,  Function::cuLaunchKernelEx};
    if (!at_once.contains(function)) return;
    ++asked;
    if (!engine.engine.submission.has_made_all()) ++early;
  });
  make_arrays(engine, 3);
  const StreamIndex stream = engine.engine.streams.create(0, 0);
  auto give = [&] {
    for (int i = 0; i < 50; ++i) engine.execution(engine.fill(engine.arrays[0]))->submit_more();
  };
  give();
  engine.engine.streams.settle(0);
  give();
  engine.engine.streams.close(stream);
  give();
  CHECK(engine.engine.streams.lend(engine.streams()[0]) != nullptr);
  CHECK(engine.engine.submission.has_made_all());
  CHECK(asked > 0);
  CHECK(early == 0);
}

TEST_CASE("memory that is short is asked for again when what was freed has come to the driver") {
  WholeEngine engine(3, ThreadUse::always);
  make_arrays(engine, 2);
  std::atomic<int> asked = 0;  // the submission thread goes on when memory was asked for
  const std::thread::id own = std::this_thread::get_id();
  engine.driver.set_before_call([&](Function function) {
    if (function == Function::cuMemAllocFromPoolAsync) ++asked;
    while (std::this_thread::get_id() != own && asked == 0) std::this_thread::yield();
  });
  engine.execution(engine.fill(engine.arrays[0]))->submit_more();
  engine.driver.refuse(Function::cuMemAllocFromPoolAsync, CUDA_ERROR_OUT_OF_MEMORY, 1);
  CHECK_FALSE(engine.run(engine.create(64, 0, 4)));
  CHECK(asked == 2);
}

TEST_CASE("an operation is let go of when its work was made and somebody has the result") {
  WholeEngine engine(3, ThreadUse::always);
  make_arrays(engine, 1);
  nb::object made = engine.create(256, 0, 4);
  CHECK_FALSE(engine.run(made));
  const std::size_t before = engine.driver.alive(Function::cuMemAllocFromPoolAsync);
  made.reset();
  engine.settle();
  CHECK(engine.driver.alive(Function::cuMemAllocFromPoolAsync) == before - 1);
  CHECK(engine.engine.given.is_empty());
}
