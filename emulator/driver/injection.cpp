// The plan of faults: how it is written, and what it strikes; see injection.hpp.
#include "injection.hpp"

#include <charconv>
#include <utility>

#include "settings.hpp"

namespace aiocuda::emulator::injection {
namespace {

constexpr std::array<std::pair<std::string_view, Kind>, kinds> names{{{"alloc", Kind::alloc},
                                                                      {"launch", Kind::launch},
                                                                      {"stall", Kind::stall},
                                                                      {"slow_copy", Kind::slow_copy},
                                                                      {"not_ready", Kind::not_ready},
                                                                      {"illegal", Kind::illegal},
                                                                      {"lost", Kind::lost},
                                                                      {"no_memory_op", Kind::no_memory_op}}};
constexpr std::uint64_t most = 1000000;
constexpr unsigned whole = 1000;

// Those that pass, so that a program goes on.
bool is_drawn(Kind kind) noexcept { return kind < Kind::illegal; }

template <typename Integer>
bool parse_number(std::string_view text, Integer least, Integer greatest, Integer& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= least && value <= greatest;
}

// Splits at the first separator; what comes after it is nothing where there is none.
std::pair<std::string_view, std::optional<std::string_view>> split(std::string_view text, char separator) {
  const std::size_t at = text.find(separator);
  if (at == std::string_view::npos) return {text, std::nullopt};
  return {text.substr(0, at), text.substr(at + 1)};
}

bool parse_draw(std::string_view text, Plan& plan) {
  const auto [seed, rate] = split(text, ':');
  Plan::Draw draw{};
  if (plan.draw || !rate || !parse_number(seed, std::uint64_t{0}, ~std::uint64_t{0}, draw.seed) ||
      !parse_number(*rate, 1u, whole, draw.per_thousand)) {
    return false;
  }
  plan.draw = draw;
  return true;
}

bool parse_fault(Kind kind, std::string_view text, int devices, Plan& plan) {
  const auto [number, device] = split(text, '@');
  Plan::Fault fault{kind, 0, std::nullopt};
  if (!parse_number(number, std::uint64_t{1}, most, fault.number)) return false;
  if (device && !parse_number(*device, 0, devices - 1, fault.device.emplace())) return false;
  plan.faults.push_back(fault);
  return true;
}

bool parse_entry(std::string_view text, int devices, Plan& plan) {
  const auto [name, rest] = split(text, ':');
  if (!rest) return false;
  if (name == "seed") return parse_draw(*rest, plan);
  for (const auto& [known, kind] : names) {
    if (name == known) return parse_fault(kind, *rest, devices, plan);
  }
  return false;
}

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014), of a seed, a kind and a count.
std::uint64_t draw_of(std::uint64_t seed, std::uint64_t kind, std::uint64_t count) noexcept {
  std::uint64_t value = seed + 0x9e3779b97f4a7c15u * (count * kinds + kind + 1);
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

}  // namespace

std::optional<Plan> parse_plan(std::string_view text, int devices) {
  Plan plan;
  for (std::optional<std::string_view> rest = text; rest;) {
    const auto [entry, after] = split(*rest, ',');
    if (!parse_entry(entry, devices, plan)) return std::nullopt;
    rest = after;
  }
  return plan;
}

Injection::Injection(const Plan& plan) : draw_(plan.draw) {
  for (const Plan::Fault& fault : plan.faults) faults_.emplace_back(fault);
}

bool Injection::strikes(Kind kind, int device) noexcept {
  bool is_struck = false;
  for (Counted& each : faults_) {
    if (each.fault.kind != kind || (each.fault.device && *each.fault.device != device)) continue;
    is_struck |= each.seen.fetch_add(1) + 1 == each.fault.number;
  }
  if (draw_ && is_drawn(kind)) {
    const auto index = static_cast<std::size_t>(kind);
    is_struck |= draw_of(draw_->seed, index, drawn_[index].fetch_add(1)) % whole < draw_->per_thousand;
  }
  return is_struck;
}

bool strikes(Kind kind, int device) noexcept {
  static Injection* const planned = settings().faults.empty() ? nullptr : new Injection(settings().faults);
  return planned != nullptr && planned->strikes(kind, device);
}

}  // namespace aiocuda::emulator::injection
