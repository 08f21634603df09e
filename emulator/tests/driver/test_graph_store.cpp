// The store of a device that executables lie in: to enlarge it, the driver waits until the device has done its work.
#include <atomic>
#include <memory>
#include <thread>

#include "test_graph_support.hpp"

using namespace graph_test;

namespace {

constexpr std::size_t first_places = 34;  // of a context in which one stream is used

// A context of its own, so that no other test has enlarged its store.
class OwnContext {
 public:
  OwnContext() { REQUIRE_OK(cuCtxCreate(&handle_, nullptr, 0, 0)); }
  ~OwnContext() { cuCtxDestroy(handle_); }
  OwnContext(const OwnContext&) = delete;
  OwnContext& operator=(const OwnContext&) = delete;
  operator CUcontext() const { return handle_; }

 private:
  CUcontext handle_ = nullptr;
};

using Executables = std::vector<std::unique_ptr<Executable>>;

void make(Executables& into, CUgraph graph, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) into.push_back(std::make_unique<Executable>(graph));
}

}  // namespace

TEST_CASE("executables that fit in the store are made while the device works; the next one waits for the device") {
  const OwnContext context;
  const Memory memory(4);
  const Graph graph;
  graph.fill({graph.fill({}, memory, 1, 1)}, memory, 2, 1);  // one branch, however long
  const Stream stream;
  Gate gate(stream);
  Executables made;
  make(made, graph, first_places);
  CHECK(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
  std::atomic<bool> has_made{false};
  std::thread thread([&] {
    CHECK_OK(cuCtxSetCurrent(context));
    make(made, graph, 1);
    has_made = true;
  });
  CHECK_FALSE(has_made);  // a wrong driver may be slow to be wrong; the next line tells which it was
  CHECK(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
  gate.open();
  thread.join();
  CHECK(cuStreamQuery(stream) == CUDA_SUCCESS);  // so it was waited for
}

TEST_CASE("each branch takes a place, and an executable that is destroyed gives its places back") {
  const OwnContext context;
  const Memory memory(4 * first_places);
  const Graph graph;
  for (std::size_t i = 0; i < first_places; ++i) graph.fill({}, memory + 4 * i, 1, 1);
  const Stream stream;
  const Gate gate(stream);
  for (int turn = 0; turn < 3; ++turn) {
    Executables made;
    make(made, graph, 1);
  }
  CHECK(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
}

TEST_CASE("a store that was enlarged stays so") {
  const OwnContext context;
  const Memory memory(4);
  const Graph graph;
  graph.fill({}, memory, 1, 1);
  {
    Executables made;
    make(made, graph, 3 * first_places);
  }
  const Stream stream;
  const Gate gate(stream);
  Executables made;
  make(made, graph, 3 * first_places);
  CHECK(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
}
