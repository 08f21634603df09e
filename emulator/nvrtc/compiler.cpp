// See compiler.hpp.
#include "compiler.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <map>
#include <mutex>
#include <sstream>

#include "process.hpp"

namespace aiocuda::emulator::nvrtc {
namespace {

constexpr int newest_clang_tried = 40;
constexpr int oldest_clang_tried = 12;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

bool is_executable(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

std::string on_path(const std::string& name, const std::string& path) {
  if (name.find('/') != std::string::npos) return is_executable(name) ? name : std::string{};
  for (const std::string& directory : split(path, ':')) {
    std::string candidate = directory + "/" + name;
    if (is_executable(candidate)) return candidate;
  }
  return {};
}

std::string identity_of(const std::string& executable) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(executable, error);
  const std::string path = error ? executable : real.string();
  struct stat status{};
  ::stat(path.c_str(), &status);
  std::ostringstream text;
  text << path << '|' << status.st_size << '|' << status.st_mtim.tv_sec << '.' << status.st_mtim.tv_nsec;
  return text.str();
}

CompilerFamily family_of(const std::vector<std::string>& command) {
  for (const std::string& word : command) {
    const std::string name = std::filesystem::path(word).filename();
    if (name.find("clang") != std::string::npos) return CompilerFamily::clang;
    if (name.find("zig") != std::string::npos) return CompilerFamily::zig;
    if (name.find("g++") != std::string::npos) return CompilerFamily::gcc;
  }
  std::vector<std::string> ask = command;
  ask.emplace_back("--version");
  const bool says_clang = run_process(ask).output.find("clang") != std::string::npos;
  return says_clang ? CompilerFamily::clang : CompilerFamily::gcc;
}

FoundCompiler found(std::vector<std::string> command) {
  FoundCompiler result;
  result.found = true;
  result.compiler.family = family_of(command);
  result.compiler.identity = identity_of(command[0]);
  for (std::size_t i = 1; i < command.size(); ++i) result.compiler.identity += "|" + command[i];
  result.compiler.command = std::move(command);
  return result;
}

// Not "c++", with which zig first compiles a whole C++ library, for a minute. Kernels use none, and headers are C++ by
// their option.
constexpr const char* zig_compiles = "cc";

FoundCompiler search(const Settings& settings) {
  if (!settings.compiler.empty()) {
    std::vector<std::string> command = split(settings.compiler, ' ');
    const std::string executable = command.empty() ? std::string{} : on_path(command[0], settings.path);
    if (!executable.empty()) {
      command[0] = executable;
      if (command.size() == 1 && std::filesystem::path(executable).filename() == "zig")
        command.emplace_back(zig_compiles);
      return found(std::move(command));
    }
    FoundCompiler result;
    result.explanation =
        "AIOCUDA_CXX says \"" + settings.compiler + "\", which is not an executable on PATH (" + settings.path + ").";
    return result;
  }
  // Versions are compared by name: "clang++" without one may be older than the newest with one.
  for (int version = newest_clang_tried; version >= oldest_clang_tried; --version) {
    const std::string path = on_path("clang++-" + std::to_string(version), settings.path);
    if (!path.empty()) return found({path});
  }
  for (const char* name : {"clang++", "g++"}) {
    const std::string path = on_path(name, settings.path);
    if (!path.empty()) return found({path});
  }
  const std::string zig = on_path(settings.zig.empty() ? "zig" : settings.zig, settings.path);
  FoundCompiler result;
  if (!zig.empty()) {
    if (!settings.zig_cache.empty()) return found({zig, zig_compiles});
    result.explanation = "zig was found (" + zig +
                         "), but no directory for what it keeps between its runs. Set HOME, or AIOCUDA_CACHE_DIR to a "
                         "directory of your own.";
    return result;
  }
  result.explanation =
      "The emulated driver runs CUDA C++ on the CPU and needs a C++ compiler for it. Looked for clang++ (also "
      "clang++-" +
      std::to_string(oldest_clang_tried) + " to clang++-" + std::to_string(newest_clang_tried) +
      "), g++ and zig on PATH (" + settings.path +
      ") and found none. Install one (Debian, Ubuntu: apt install clang, or apt install g++; anywhere: pip install "
      "\"aiocuda[emulator]\"), or set AIOCUDA_CXX to one.";
  return result;
}

void append(std::vector<std::string>& to, std::initializer_list<const char*> more) {
  to.insert(to.end(), more.begin(), more.end());
}

// Every access to memory calls a hook (cuda_cpp/runtime/access_hooks.cpp). The compilers instrument for
// ThreadSanitizer, whose library is not linked. They tell of no access wider than 16 bytes, so nothing is vectorised.
std::vector<std::string> options_for_checking(const Compiler& compiler) {
  // A report names the line. Of two variables that follow each other in the program, the second lies behind the first:
  // so an overrun of a shared array reaches the gap behind it. A hook must return to the instruction that it speaks of.
  std::vector<std::string> wanted = {"-DAIOCUDA_CHECKED=1", "-g1", "-gdwarf-4", "-fno-optimize-sibling-calls"};
  if (compiler.family == CompilerFamily::gcc) {
    // g++ tells of no access that is a call's own: of a structure that is handed over, or stored as it is returned. So
    // that there are none left, it puts every function into its callers that it can.
    append(wanted, {"-fsanitize=thread", "-fno-tree-vectorize", "--param", "tsan-distinguish-volatile=1", "-Wno-tsan",
                    "-fno-toplevel-reorder", "-finline-functions", "-finline-limit=100000", "--param",
                    "large-function-growth=100000", "--param", "inline-unit-growth=100000", "--param",
                    "large-stack-frame-growth=100000", "--param", "max-inline-insns-small=100000"});
    return wanted;
  }
  // The option of the compiler proper: the driver program's would link the library.
  append(wanted, {"-Xclang", "-fsanitize=thread", "-fno-vectorize", "-fno-slp-vectorize", "-mllvm",
                  "-tsan-distinguish-volatile=1", "-mllvm", "-tsan-instrument-func-entry-exit=0", "-mllvm",
                  "-tsan-instrument-read-before-write=1"});
  return wanted;
}

// CUDA programs hand on variables that only some lanes have set ("x = __shfl_sync(mask, x, leader)"). A clang
// that takes arguments for defined would conclude that every lane sets them. The option's name has changed.
std::vector<std::string> options_for_undefined_arguments(const Compiler& compiler) {
  if (!compiler.is_clang()) return {};
  static std::mutex mutex;
  static std::map<std::string, std::vector<std::string>> known;
  const std::scoped_lock lock(mutex);
  const auto [entry, is_new] = known.try_emplace(compiler.identity);
  if (!is_new) return entry->second;
  for (const char* name : {"-no-enable-noundef-analysis", "-disable-noundef-analysis"}) {
    std::vector<std::string> ask = compiler.command;
    ask.insert(ask.end(), {"-Xclang", name, "-E", "-o", "/dev/null", "-x", "c++", "/dev/null"});
    const ProcessResult answer = run_process(ask);
    if (!answer.started || answer.exit_status != 0) continue;
    entry->second = {"-Xclang", name};
    break;
  }
  return entry->second;
}

void append_linking(std::vector<std::string>& command, const Compiler& compiler, const CompilerPaths& paths,
                    Undefined undefined) {
  command.emplace_back("-Wl,-Bsymbolic");
  // A name that nothing defines is an error here, which says the name, and not when the module is loaded.
  if (compiler.family != CompilerFamily::zig) {
    command.emplace_back("-Wl,--emit-relocs");  // they tell which function uses which (image.cpp)
    command.emplace_back("-nostdlib");
    command.emplace_back(undefined == Undefined::refused ? "-Wl,-z,defs" : "-Wl,--unresolved-symbols=ignore-all");
  }
  command.push_back(paths.runtime_object);
  command.insert(command.end(), {"-o", paths.output});
}

void append_libraries(std::vector<std::string>& command, const Compiler& compiler) {
  append(command, {"-lm", "-ldl", "-lc"});
  if (compiler.family != CompilerFamily::zig) command.emplace_back("-lgcc");
}

}  // namespace

FoundCompiler find_compiler(const Settings& settings) {
  // Asking an unknown compiler what it is costs a process; the answer for one setting stays.
  static std::mutex mutex;
  static std::map<std::array<std::string, 4>, FoundCompiler> known;
  const std::scoped_lock lock(mutex);
  const std::array<std::string, 4> key = {settings.compiler, settings.zig, settings.path, settings.zig_cache};
  auto entry = known.find(key);
  if (entry == known.end() || !entry->second.found || !is_executable(entry->second.compiler.command[0])) {
    entry = known.insert_or_assign(key, search(settings)).first;
  }
  return entry->second;
}

std::vector<std::string> scan_command(const Compiler& compiler, const Options& options, const CompilerPaths& paths,
                                      bool allows_host_code) {
  std::vector<std::string> command = compiler.command;
  append(command, {"-E", "-x", "c++", "-nostdinc", "-nostdinc++"});
  command.push_back("-std=gnu++" + std::to_string(options.cpp_standard));
  if (options.no_warnings) command.emplace_back("-w");
  append(command, {"-D__CUDACC__=1", "-D__CUDACC_RTC__=1", "-D__CUDA__=1", "-D__CUDACC_VER_MAJOR__=13",
                   "-D__CUDACC_VER_MINOR__=0", "-D__CUDACC_VER_BUILD__=0", "-D__CUDACC_EXTENDED_LAMBDA__=1",
                   "-D__CUDACC_RELAXED_CONSTEXPR__=1", "-D__NVCC_DIAG_PRAGMA_SUPPORT__=1", "-DAIOCUDA_EMULATED=1",
                   "-DCUDART_VERSION=13000", "-D__NV_BUILTIN_INITIALIZER_LIST=1", "-DCCCL_DISABLE_NVFP8_SUPPORT=1"});
  // libcu++ would use __remove_reference, which g++ 13 has, but refuses in the signature of a function template.
  command.emplace_back("-D_LIBCUDACXX_USE_REMOVE_REFERENCE_T_FALLBACK=1");
  // NVRTC is neither g++ nor clang++, and NVIDIA's headers ask for these before they ask for NVRTC.
  append(command, {"-U__GNUC__", "-U__clang__"});
  command.push_back("-D__CUDA_ARCH__=" + std::to_string(options.architecture * 10));
  command.push_back("-D__CUDA_ARCH_LIST__=" + std::to_string(options.architecture * 10));
  if (options.device_debug) command.emplace_back("-D__CUDACC_DEBUG__=1");
  if (options.fast_math) command.emplace_back("-D__USE_FAST_MATH__=1");
  command.push_back("-I" + paths.program_headers);
  command.push_back("-I" + paths.visible_headers);
  if (allows_host_code) command.push_back("-I" + paths.visible_headers + "/host");
  command.insert(command.end(), options.preprocessor.begin(), options.preprocessor.end());
  // Where NVIDIA's headers of libcu++ are on the program's include path, they are found first.
  command.push_back("-idirafter" + paths.visible_headers + "/libcudacxx");
  command.insert(command.end(), {paths.source, "-o", paths.output});
  return command;
}

std::vector<std::string> build_command(const Compiler& compiler, const Options& options, const CompilerPaths& paths,
                                       const ProgramTraits& program) {
  std::vector<std::string> command = compiler.command;
  command.push_back("-std=gnu++" + std::to_string(options.cpp_standard));
  append(command,
         {options.is_relocatable ? "-c" : "-shared", "-fPIC", "-fvisibility=hidden", "-fno-semantic-interposition",
          "-fno-exceptions", "-fno-rtti", "-fno-math-errno", "-fno-trapping-math", "-fno-builtin-printf",
          "-fno-builtin-vprintf", "-fno-strict-aliasing", "-fno-stack-protector", "-fno-threadsafe-statics",
          "-fno-asynchronous-unwind-tables", "-ffunction-sections", "-Wno-attributes", "-Wno-unknown-pragmas",
          "-Werror=vla", "-Werror=pointer-arith"});
  append(command, {options.device_debug ? "-O0" : paths.checked ? "-O2" : "-O3"});
  if (options.device_debug) command.emplace_back("-g");
  if (options.line_information || options.is_relocatable) command.emplace_back("-g1");
  if (options.is_relocatable) {
    // A linker names the lines that want what nobody defines: in files of their own names, which GNU ld tells wrongly
    // where it reads DWARF 5.
    std::error_code error;
    command.emplace_back("-gdwarf-4");
    command.push_back("-fdebug-prefix-map=" + std::filesystem::current_path(error).string() + "=.");
  }
  command.emplace_back("-fsigned-char");  // which is not every processor's own way
  command.emplace_back(options.multiply_add ? "-ffp-contract=fast" : "-ffp-contract=off");
  if (options.fast_math) append(command, {"-freciprocal-math", "-fno-signed-zeros"});
#if defined(__x86_64__)
  if (compiler.family != CompilerFamily::zig) append(command, {"-march=native", "-fcf-protection=none"});
#else
  if (compiler.family != CompilerFamily::zig) append(command, {"-mcpu=native"});
  // g++ counts the variables of several kernels from one place, so their code would not tell which of them it uses.
  if (compiler.family == CompilerFamily::gcc) append(command, {"-fno-section-anchors"});
#endif
  if (compiler.family == CompilerFamily::gcc) {
    append(command, {"-fno-gnu-unique", "-fno-ipa-icf", "-Wno-psabi", "-Wno-register"});
  } else {
    append(command,
           {"-Wno-pass-failed", "-Wno-register", "-Wno-ignored-attributes", "-Wno-unused-command-line-argument"});
  }
  // Of these warnings, the few that matter are chosen afterwards: see diagnostics.cpp.
  if (!program.has_host_code) {
    if (compiler.is_clang())
      command.insert(command.end(), {"-Werror=zero-length-array", "-Werror=gnu-label-as-value", "-Werror=gnu-auto-type",
                                     "-Wc99-extensions"});
    else
      command.emplace_back("-Wpedantic");
  }
  for (const std::string& option : options_for_undefined_arguments(compiler)) command.push_back(option);
  if (paths.checked) {
    for (const std::string& option : options_for_checking(compiler)) command.push_back(option);
  }
  if (program.casts_pointers && !paths.checked) {
    // An access that is misaligned for its type calls a function of the block runtime, which fails the launch.
    // The checks find such accesses themselves.
    if (compiler.is_clang()) append(command, {"-Xclang"});
    append(command, {"-fsanitize=alignment"});
    if (!compiler.is_clang()) append(command, {"-fno-sanitize-recover=alignment"});
  }
  if (options.no_warnings || program.includes_nvidia) command.emplace_back("-w");
  command.push_back("-isystem" + paths.device_headers);
  if (options.is_relocatable) {
    command.insert(command.end(), {"-x", "c++", paths.source, "-o", paths.output});
    return command;
  }
  command.insert(command.end(), {"-x", "c++", paths.source, "-x", "none"});
  append_linking(command, compiler, paths, Undefined::refused);
  if (program.uses_host_library && compiler.family != CompilerFamily::zig) command.emplace_back("-lstdc++");
  append_libraries(command, compiler);
  return command;
}

std::vector<std::string> link_command(const Compiler& compiler, const CompilerPaths& paths,
                                      const std::vector<std::string>& objects, Undefined undefined) {
  std::vector<std::string> command = compiler.command;
  append(command, {"-shared", "-fPIC"});
  command.insert(command.end(), objects.begin(), objects.end());
  append_linking(command, compiler, paths, undefined);
  // Which of the objects use it, nobody knows here.
  if (compiler.family != CompilerFamily::zig) append(command, {"-Wl,--as-needed", "-lstdc++", "-Wl,--no-as-needed"});
  append_libraries(command, compiler);
  return command;
}

std::string processor_identity() {
  // The first processor's description: "flags" on x86-64, "Features" on aarch64, with the model.
  static const std::string identity = [] {
    std::string text;
    read_file("/proc/cpuinfo", text);
    std::string kept;
    std::istringstream lines(text.substr(0, text.find("\n\n")));
    for (std::string line; std::getline(lines, line);) {
      for (const char* key : {"flags", "Features", "model", "vendor_id", "cpu family", "CPU "}) {
        if (line.starts_with(key)) kept += line + "\n";
      }
    }
    return kept;
  }();
  return identity;
}

}  // namespace aiocuda::emulator::nvrtc
