// One compilation from text to image, without the cache: scan (preprocess), rewrite, compile, complete.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "compiler.hpp"
#include "installation.hpp"
#include "options.hpp"
#include "program.hpp"

namespace aiocuda::emulator::nvrtc {

struct BuildRequest {
  const std::string& source;
  const std::string& program_name;
  const std::vector<Header>& headers;
  const std::vector<std::string>& name_expressions;
  const Options& options;
  const Compiler& compiler;
  const Installation& installation;
  const std::string& temporary_directory;
  bool allows_host_code;
  bool checked;  // compiled for the driver's checks
};

struct BuildResult {
  Result result = error_compilation;
  std::string image;
  std::string log;
  std::vector<std::string> lowered_names;                         // of the name expressions
  std::vector<std::pair<std::string, std::string>> dependencies;  // files read from disk and their hashes
};

BuildResult build_module(const BuildRequest& request);

}  // namespace aiocuda::emulator::nvrtc
