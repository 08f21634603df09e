// See kernel_reports.hpp.
#include "checking/kernel_reports.hpp"

#include <cstdio>
#include <cstring>

#include "checking/operation.hpp"

namespace aiocuda::emulator::checking {
namespace {

std::string triple(const std::array<std::uint32_t, 3>& index, const char* separator) {
  return std::to_string(index[0]) + separator + std::to_string(index[1]) + separator + std::to_string(index[2]);
}

std::string message_of(const KernelReport& report) {
  std::string text =
      "kernel " + report.kernel + ", " + report.line.text() + ", " + text_of(report.place) + ": " + report.what;
  if (!report.memory.empty()) text += "; " + report.memory;
  return text;
}

}  // namespace

std::string text_of(const ThreadPlace& place) {
  return "block (" + triple(place.block, ",") + "), thread (" + triple(place.thread, ",") + ")";
}

std::string in_json(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

bool KernelReports::knows(std::string_view key) {
  const std::lock_guard lock(mutex_);
  const auto found = index_.find(key);
  if (found == index_.end()) return false;
  ++kept_[found->second].count;
  return true;
}

void KernelReports::add(std::string_view key, const KernelReport& report) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = index_.find(key);
    if (found != index_.end()) {
      ++kept_[found->second].count;
      return;
    }
    if (kept_.size() >= most_kept) {
      ++not_kept_;
      return;
    }
    index_.emplace(key, kept_.size());
    kept_.push_back({report});
  }
  std::fprintf(stderr, "emulated CUDA driver: check of %s: %s\n", report.check.c_str(), message_of(report).c_str());
}

std::size_t KernelReports::take(char* text, std::size_t capacity) {
  const std::lock_guard lock(mutex_);
  if (kept_.empty()) return 0;
  std::string all;
  for (const auto& [report, count] : kept_) {
    std::string message = message_of(report);
    if (count > 1) message += " (and " + count_of(count - 1, "time") + " more)";
    if (&report == &kept_.back().report && not_kept_ > 0)
      message += " (and " + count_of(not_kept_, "report") + " more, not listed)";
    all += "{\"check\": " + in_json(report.check) + ", \"kernel\": " + in_json(report.kernel) +
           ", \"file\": " + in_json(report.line.file) + ", \"line\": " + std::to_string(report.line.line) +
           ", \"block\": [" + triple(report.place.block, ", ") + "], \"thread\": [" +
           triple(report.place.thread, ", ") + "], \"memory\": " + in_json(report.memory) +
           ", \"address\": " + std::to_string(report.address) + ", \"count\": " + std::to_string(count) +
           ", \"message\": " + in_json(message) + "}\n";
  }
  if (text == nullptr || all.size() > capacity) return all.size();
  std::memcpy(text, all.data(), all.size());
  kept_.clear();
  index_.clear();
  not_kept_ = 0;
  return all.size();
}

KernelReports& kernel_reports() {
  static auto* const reports = new KernelReports;
  return *reports;
}

}  // namespace aiocuda::emulator::checking

std::size_t aiocuda_emulator_take_kernel_reports(char* text, std::size_t capacity) {
  return aiocuda::emulator::checking::kernel_reports().take(text, capacity);
}
