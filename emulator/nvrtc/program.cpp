// See program.hpp.
#include "program.hpp"

#include <algorithm>
#include <filesystem>

#include "abi/text_image.hpp"
#include "build.hpp"
#include "cache.hpp"
#include "compiler.hpp"
#include "installation.hpp"
#include "settings.hpp"
#include "sha256.hpp"

namespace aiocuda::emulator::nvrtc {

Program::Program(std::string source, std::string name, std::vector<Header> headers)
    : source_(std::move(source)), name_(std::move(name)), headers_(std::move(headers)) {}

Result Program::add_name_expression(const std::string& expression) {
  if (attempted_) return error_no_name_expressions_after_compilation;
  if (std::find(name_expressions_.begin(), name_expressions_.end(), expression) == name_expressions_.end()) {
    name_expressions_.push_back(expression);
  }
  return success;
}

Result Program::compile(const std::vector<std::string>& given) {
  attempted_ = true;
  compiled_ = false;
  image_.clear();
  log_.clear();
  given_options_ = given;
  if (is_cancelled()) return error_cancelled;
  const Options options = parse_options(given);
  if (!options.errors.empty()) {
    for (const std::string& error : options.errors) log_ += error + "\n";
    return error_invalid_option;
  }
  architecture_ = options.architecture;
  for_link_time_ = options.for_link_time;
  try {
    return build(options);
  } catch (const std::filesystem::filesystem_error& error) {
    log_ += std::string("the emulated NVRTC cannot use its files: ") + error.what() + "\n";
    return error_compilation;
  }
}

Result Program::build(const Options& options) {
  const Settings settings = read_settings();
  const Installation& installed = installation();
  if (!installed.complete) {
    log_ = installed.explanation + "\n";
    return error_internal_error;
  }
  const FoundCompiler found = find_compiler(settings);
  if (!found.found) {
    log_ = found.explanation + "\n";
    return error_compilation;
  }
  Sha256 hash;
  hash.add_field(installed.identity).add_field(found.compiler.identity).add_field(processor_identity());
  hash.add_field(settings.checked ? "checked" : "").add_field(settings.allows_host_code ? "host" : "");
  hash.add_field(name_).add_field(source_).add_field(std::to_string(headers_.size()));
  for (const Header& header : headers_) hash.add_field(header.include_name).add_field(header.content);
  hash.add_field(std::to_string(given_options_.size()));
  for (const std::string& option : given_options_) hash.add_field(option);
  // Include paths may be relative.
  std::error_code ignored;
  if (!options.preprocessor.empty()) hash.add_field(std::filesystem::current_path(ignored).string());
  for (const std::string& expression : name_expressions_) hash.add_field(expression);
  const std::string key = hash.hex();

  const Cache cache(options.no_cache ? std::string{} : settings.cache_directory, settings.cache_limit_bytes);
  if (std::optional<CachedModule> known = cache.find(key)) {
    image_ = std::move(known->image);
    log_ = std::move(known->log);
    lowered_names_ = std::move(known->lowered_names);
    compiled_ = true;
    return success;
  }
  BuildResult built = build_module({source_, name_, headers_, name_expressions_, options, found.compiler, installed,
                                    settings.temporary_directory, settings.allows_host_code, settings.checked});
  if (is_cancelled()) return error_cancelled;
  log_ = std::move(built.log);
  if (built.result != success) return built.result;
  image_ = std::move(built.image);
  lowered_names_ = std::move(built.lowered_names);
  compiled_ = true;
  cache.store(key, {image_, log_, lowered_names_, std::move(built.dependencies)});
  return success;
}

std::string Program::ptx() const {
  std::string text = abi::text_of_image(image_, architecture_);
  text += '\0';
  return text;
}

const char* Program::lowered_name(const std::string& expression, Result& result) const {
  if (!attempted_ || !compiled_) {
    result = error_no_lowered_names_before_compilation;
    return nullptr;
  }
  const auto found = std::find(name_expressions_.begin(), name_expressions_.end(), expression);
  const auto index = static_cast<std::size_t>(found - name_expressions_.begin());
  if (found == name_expressions_.end() || lowered_names_[index].empty()) {
    result = error_name_expression_not_valid;
    return nullptr;
  }
  result = success;
  return lowered_names_[index].c_str();
}

}  // namespace aiocuda::emulator::nvrtc
