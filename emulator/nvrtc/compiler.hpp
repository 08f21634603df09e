// The host's C++ compiler: found, told apart, and its command lines.
#pragma once

#include <string>
#include <vector>

#include "options.hpp"
#include "settings.hpp"

namespace aiocuda::emulator::nvrtc {

enum class CompilerFamily { clang, gcc, zig };

struct Compiler {
  std::vector<std::string> command;  // the executable's path first
  CompilerFamily family = CompilerFamily::gcc;
  std::string identity;  // changes when the compiler does: path, size, time of last change

  bool is_clang() const { return family != CompilerFamily::gcc; }
};

struct FoundCompiler {
  bool found = false;
  Compiler compiler;
  std::string explanation;  // where none was found: what was looked for, what to do
};

// The newest clang++, else g++, else zig; or what the settings say.
FoundCompiler find_compiler(const Settings& settings);

struct CompilerPaths {
  std::string source;
  std::string output;
  std::string visible_headers;  // the headers a program may include, as the scan sees them
  std::string device_headers;   // what they stand for
  std::string program_headers;  // those handed over with the program
  std::string runtime_object;
  bool checked = false;  // the module tells what memory it touches, and has its lines
};

// From the user's text to preprocessed text.
std::vector<std::string> scan_command(const Compiler& compiler, const Options& options, const CompilerPaths& paths,
                                      bool allows_host_code);

// What a program does that asks for options.
struct ProgramTraits {
  bool uses_host_library = false;
  bool casts_pointers = false;   // see casts.hpp
  bool has_host_code = false;    // so it may be of the host's language, too
  bool includes_nvidia = false;  // headers of libcu++ or cub by NVIDIA
};

// From rewritten text to a module image or, of a relocatable program, to an object for a linker.
std::vector<std::string> build_command(const Compiler& compiler, const Options& options, const CompilerPaths& paths,
                                       const ProgramTraits& program);

// From objects to a module image. What no object defines is an error, or nothing that is looked at.
enum class Undefined { refused, allowed };
std::vector<std::string> link_command(const Compiler& compiler, const CompilerPaths& paths,
                                      const std::vector<std::string>& objects, Undefined undefined);

// The processor's features, on which -march=native depends.
std::string processor_identity();

}  // namespace aiocuda::emulator::nvrtc
