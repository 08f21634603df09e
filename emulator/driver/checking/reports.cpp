// The wording of reports; see reports.hpp.
#include "checking/reports.hpp"

#include <algorithm>
#include <utility>

#include "checking/kernel_reports.hpp"
#include "hexadecimal.hpp"

namespace aiocuda::emulator::checking {
namespace {

std::string message_of(const Race& race) {
  const Operation& first = *race.first;
  const Operation& second = *race.second;
  std::string text = first.text + " on " + first.stream->text + " and " + second.text + " on " + second.stream->text;
  text += race.first_writes && race.second_writes ? " both write "
          : race.first_writes                     ? ": the first writes and the second reads "
                                                  : ": the first reads and the second writes ";
  text += count_of(race.bytes, "byte");
  if (race.range_count > 1) text += " in " + count_of(race.range_count, "range");
  text += " from " + hexadecimal(race.begin) + (race.allocation.empty() ? "" : ", " + race.allocation);
  const bool are_of_one_launch = first.sequence.submission == second.sequence.submission;
  text += are_of_one_launch ? ", and no path of edges leads from one of these nodes to the other"
                            : ", and nothing orders them: after " + first.text + ", " + second.stream->short_text +
                                  " never waited for " + first.stream->short_text;
  return text;
}

std::string stream_fields(const char* which, const StreamName& stream) {
  return std::string(", \"") + which + "_stream\": " + in_json(stream.text) + ", \"" + which +
         "_stream_number\": " + std::to_string(stream.number) + ", \"" + which +
         "_stream_handle\": " + std::to_string(stream.handle);
}

}  // namespace

void Reports::add(const Race& race) {
  if (kept_.size() >= most_kept) {
    ++not_kept_;
  } else {
    kept_.push_back(race);
  }
}

std::string Reports::text() {
  // In the order of submission, however the operations fell out in time.
  std::sort(kept_.begin(), kept_.end(), [](const Race& a, const Race& b) {
    return std::pair(a.first->sequence, a.second->sequence) < std::pair(b.first->sequence, b.second->sequence);
  });
  std::string text;
  for (const Race& race : kept_) {
    std::string message = message_of(race);
    if (&race == &kept_.back() && not_kept_ > 0)
      message += " (and " + count_of(not_kept_, "race") + " more, not listed)";
    text += "{\"first\": " + in_json(race.first->text) + ", \"second\": " + in_json(race.second->text) +
            stream_fields("first", *race.first->stream) + stream_fields("second", *race.second->stream) +
            ", \"begin\": " + std::to_string(race.begin) + ", \"end\": " + std::to_string(race.end) +
            ", \"message\": " + in_json(message) + "}\n";
  }
  return text;
}

void Reports::clear() {
  kept_.clear();
  not_kept_ = 0;
}

}  // namespace aiocuda::emulator::checking
