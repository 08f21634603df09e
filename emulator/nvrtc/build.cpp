// See build.hpp.
#include "build.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "diagnostics.hpp"
#include "image.hpp"
#include "process.hpp"
#include "rewrite.hpp"
#include "sha256.hpp"

namespace aiocuda::emulator::nvrtc {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t max_static_shared_bytes = 48 * 1024;

std::string quoted(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

// The text under the name the user knows it by.
std::string named(const std::string& text, std::string_view name) {
  return "# 1 \"" + quoted(name) + "\"\n" + text + "\n";
}

// A header's name as a path that cannot leave the directory it is written to.
bool stays_inside(const fs::path& name) {
  return !name.empty() && name.is_relative() &&
         std::none_of(name.begin(), name.end(), [](const fs::path& part) { return part == ".."; });
}

class Build {
 public:
  explicit Build(const BuildRequest& request) : request_(request), directory_(request.temporary_directory) {
    paths_.visible_headers = request.installation.visible_headers;
    paths_.device_headers = request.installation.device_headers;
    paths_.checked = request.checked;
    paths_.runtime_object =
        request.checked ? request.installation.checked_runtime_object : request.installation.runtime_object;
    paths_.program_headers = directory_.path() / "headers";
  }

  BuildResult run() {
    std::string preprocessed;
    if (!write_program() || !scan(preprocessed)) return std::move(result_);
    const std::string unit = sha256(request_.program_name + '\0' + request_.source).substr(0, 16);
    RewriteRequest asked{preprocessed,
                         request_.name_expressions,
                         request_.compiler.is_clang(),
                         unit,
                         request_.options.is_relocatable,
                         request_.options.cpp_standard,
                         request_.allows_host_code,
                         request_.options.default_device,
                         request_.options.device_int128};
    asked.checked = request_.checked;
    Rewritten rewritten = rewrite(asked);
    if (!rewritten.problems.empty()) {
      result_.log += log_of(rewritten.problems, request_.program_name);
      return std::move(result_);
    }
    const std::string log = result_.log;
    bool is_compiled = compile(rewritten);
    if (!is_compiled && rewritten.has_split) {
      // The error may be that of a split kernel, and messages are to quote the program as it is.
      asked.may_split = false;
      result_.log = log;
      rewritten = rewrite(asked);
      is_compiled = compile(rewritten);
    }
    if (!is_compiled) return std::move(result_);
    if (complete(rewritten.kernel_count)) {
      remember_dependencies(rewritten.files);
      result_.result = success;
    }
    return std::move(result_);
  }

 private:
  bool write_program() {
    fs::create_directory(paths_.program_headers);
    for (const Header& header : request_.headers) {
      const fs::path name(header.include_name);
      if (!stays_inside(name)) {
        result_.log += "the include name \"" + header.include_name + "\" is not a relative path without \"..\"\n";
        result_.result = error_invalid_input;
        return false;
      }
      const fs::path path = paths_.program_headers / name;
      fs::create_directories(path.parent_path());
      write_file(path, named(header.content, header.include_name));
    }
    // Quoted includes look beside the source first: put it where they find the program's own headers.
    paths_.source = paths_.program_headers + "/aiocuda program";
    paths_.output = directory_.path() / "scanned.ii";
    write_file(paths_.source, named(request_.source, request_.program_name));
    return true;
  }

  bool scan(std::string& preprocessed) {
    return run(scan_command(request_.compiler, request_.options, paths_, request_.allows_host_code)) &&
           read_output(preprocessed);
  }

  bool compile(const Rewritten& rewritten) {
    std::string text;
    const bool uses_host_library = std::any_of(rewritten.includes.begin(), rewritten.includes.end(),
                                               [](const std::string& header) { return header.starts_with('<'); });
    // The host's headers come before ours, which then leave out what those define.
    for (const std::string& header : rewritten.includes) {
      if (header.starts_with('<')) text += "#include " + header + "\n";
    }
    if (uses_host_library) text = "#define AIOCUDA_HOST_LIBRARY 1\n#include <new>\n" + text;
    if (std::find(request_.options.preprocessor.begin(), request_.options.preprocessor.end(), "-DNDEBUG") !=
        request_.options.preprocessor.end()) {
      text += "#define NDEBUG 1\n";
    }
    text += "#include <aiocuda_cuda_cpp/cuda_cpp.hpp>\n";
    for (const std::string& header : rewritten.includes) {
      if (!header.starts_with('<')) text += "#include " + header + "\n";
    }
    // A template's instance is exported only if the types it is made with are visible.
    text += "#pragma GCC visibility push(default)\n" + rewritten.text;
    paths_.source = directory_.path() / "module.cpp";
    paths_.output = directory_.path() / (request_.options.is_relocatable ? "module.o" : "module.so");
    write_file(paths_.source, text);
    return run(build_command(
               request_.compiler, request_.options, paths_,
               {uses_host_library, rewritten.casts_pointers, request_.allows_host_code, rewritten.includes_nvidia})) &&
           read_output(result_.image);
  }

  bool complete(std::size_t kernel_count) {
    const std::size_t count = kernel_count + request_.name_expressions.size();
    std::string linked;
    if (request_.options.is_relocatable && !link_alone(linked)) return false;
    const ImageContents contents = complete_image(request_.options.is_relocatable ? linked : result_.image);
    if (!contents.valid || contents.lowered_names.size() < count) {
      result_.log += "the compiled module has no table of kernels: the compiler made something else than was asked\n";
      result_.result = error_internal_error;
      return false;
    }
    bool fits = true;
    for (std::size_t i = 0; i < count; ++i) {
      if (contents.static_shared_bytes[i] <= max_static_shared_bytes) continue;
      result_.log += "error: entry function '" + contents.lowered_names[i] + "' uses too much shared data (" +
                     std::to_string(contents.static_shared_bytes[i]) + " bytes, at most " +
                     std::to_string(max_static_shared_bytes) + "; use dynamic shared memory for more)\n";
      fits = false;
    }
    result_.lowered_names.assign(contents.lowered_names.begin() + static_cast<std::ptrdiff_t>(kernel_count),
                                 contents.lowered_names.end());
    return fits;
  }

  // What a relocatable program's kernels are called can be read off an image alone: one in which what other programs
  // are to define stays open, and which nobody loads.
  bool link_alone(std::string& image) {
    const std::string object = paths_.output;
    paths_.output = directory_.path() / "alone.so";
    return run(link_command(request_.compiler, paths_, {object}, Undefined::allowed)) && read_output(image);
  }

  bool run(const std::vector<std::string>& command) {
    const ProcessResult process = run_process(command);
    const bool failed = !process.started || process.exit_status != 0;
    if (process.output.empty() && !failed) return true;
    const std::string prefix = directory_.path();
    const ReadableLog log =
        readable_log({process.output, prefix, paths_.device_headers, request_.program_name, request_.source, failed});
    result_.log += log.text;
    return !log.has_errors;
  }

  bool read_output(std::string& content) {
    if (read_file(paths_.output, content)) return true;
    result_.log += "the compiler " + request_.compiler.command[0] + " ended well but wrote nothing\n";
    result_.result = error_internal_error;
    return false;
  }

  void remember_dependencies(const std::vector<std::string>& files) {
    for (const std::string& file : files) {
      std::string content;
      const bool is_ours = file.starts_with(paths_.device_headers) || file.starts_with(directory_.path().string());
      if (!file.starts_with('/') || is_ours || !read_file(file, content)) continue;
      result_.dependencies.emplace_back(file, sha256(content));
    }
  }

  const BuildRequest& request_;
  TemporaryDirectory directory_;
  CompilerPaths paths_;
  BuildResult result_;
};

}  // namespace

BuildResult build_module(const BuildRequest& request) { return Build(request).run(); }

}  // namespace aiocuda::emulator::nvrtc
