// A program as nvrtcCreateProgram makes it: source, headers and name expressions in; image, log and lowered
// names out.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "nvrtc_types.hpp"
#include "options.hpp"

namespace aiocuda::emulator::nvrtc {

struct Header {
  std::string include_name;
  std::string content;
};

class Program {
 public:
  Program(std::string source, std::string name, std::vector<Header> headers);

  Result add_name_expression(const std::string& expression);
  Result compile(const std::vector<std::string>& options);
  // The symbol of a name expression, or null with the reason in `result`.
  const char* lowered_name(const std::string& expression, Result& result) const;

  bool is_compiled() const { return compiled_; }
  const std::string& image() const { return image_; }
  bool is_for_link_time() const { return for_link_time_; }
  // The image as text, with the zero byte that ends it: what stands for PTX.
  std::string ptx() const;
  const std::string& log() const { return log_; }

  using FlowCallback = int (*)(void* payload, void* unused);
  void set_flow_callback(FlowCallback callback, void* payload) {
    flow_callback_ = callback;
    flow_payload_ = payload;
  }

 private:
  Result build(const Options& options);
  bool is_cancelled() const { return flow_callback_ != nullptr && flow_callback_(flow_payload_, nullptr) != 0; }

  std::string source_;
  std::string name_;
  std::vector<Header> headers_;
  std::vector<std::string> name_expressions_;
  std::vector<std::string> lowered_names_;  // in the order of name_expressions_
  std::vector<std::string> given_options_;
  int architecture_ = 0;
  bool for_link_time_ = false;
  std::string image_;
  std::string log_;
  bool attempted_ = false;
  bool compiled_ = false;
  FlowCallback flow_callback_ = nullptr;
  void* flow_payload_ = nullptr;
};

}  // namespace aiocuda::emulator::nvrtc
