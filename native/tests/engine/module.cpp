// The tests of what works with Python's objects, as a module of Python's: whoever imports it runs them by `run`.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "whole_engine.hpp"

NB_MODULE(engine_tests, module) {
  nanobind::set_leak_warnings(false);
  aiocuda::driver::tests::bind_nouns(module);
  // The exit status; `arguments` are doctest's.
  module.def("run", [](const std::vector<std::string>& arguments) {
    std::vector<const char*> words{"engine_tests"};
    for (const std::string& each : arguments) words.push_back(each.c_str());
    doctest::Context context(static_cast<int>(words.size()), words.data());
    return context.run();
  });
}
