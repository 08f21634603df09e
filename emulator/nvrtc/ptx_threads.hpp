// The instructions of inline PTX that threads execute together: barriers, asynchronous copies, warps, matrices.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

#include "ptx_operands.hpp"

namespace aiocuda::emulator::nvrtc::ptx {

class CommonInstruction : public Instruction {
 protected:
  using Instruction::Instruction;

  std::string barrier() {
    knows_others_ = true;
    if (has("cluster")) {
      if (has("arrive")) return "::aiocuda_cluster_arrive(" + line_ + ")";
      if (has("wait")) return "::aiocuda_cluster_wait(" + line_ + ")";
      throw Unsupported{opcode_};
    }
    if (has("red")) throw Unsupported{opcode_};
    if (has("warp")) return "::__syncwarp((unsigned)" + argument(0) + ", " + line_ + ")";
    const bool arrives = has("arrive");
    if (arguments_.size() < 2) {
      if (arrives || arguments_.empty()) throw Unsupported{opcode_ + " without a count"};
      if (arguments_[0] == "0") return "::aiocuda_barrier(" + line_ + ")";
    }
    const std::string count =
        arguments_.size() < 2 ? "blockDim.x * blockDim.y * blockDim.z" : "(unsigned)" + argument(1);
    return "::aiocuda_named_barrier((unsigned)" + argument(0) + ", " + count + ", " + (arrives ? "0" : "1") + ", " +
           line_ + ")";
  }

  std::string copy_async() {
    if (!has("async") || has("reduce")) throw Unsupported{opcode_};
    if (has_any({"commit_group", "wait_group", "wait_all"})) return "(void)0";
    if (arguments_.size() < 3) throw Unsupported{opcode_ + " with fewer operands"};
    const auto inside = [](const std::string& text) { return text.substr(1, text.rfind(']') - 1); };
    const std::string given = arguments_.size() > 3 ? argument(3) : argument(2);
    const std::string from = inside(arguments_[1]);
    parts_.erase(std::remove(parts_.begin(), parts_.end(), "global"), parts_.end());
    const std::string to = address(arguments_[0]);
    parts_ = {"cp"};
    return std::string(library) + "copy_async(" + to + ", " + address("[" + from + "]") + ", (unsigned)" + argument(2) +
           ", (unsigned)" + given + ")";
  }

  // "mapa": the same place in the shared memory of another block. "getctarank": the block in whose memory a place lies.
  std::string place_in_cluster() {
    const bool maps = parts_[0] == "mapa";
    if (maps) knows_others_ = true;
    if (arguments_.size() < (maps ? 3u : 2u) || width() != 1) throw Unsupported{opcode_};
    const bool is_shared = has_any({"shared", "shared::cluster"});
    const std::string at = std::string(library) + (is_shared ? "shared(" : "generic(") + argument(1) + ")";
    if (!maps) return target() + " = ::aiocuda_shared_rank(" + at + ")";
    const std::string mapped = "::aiocuda_map_shared(" + at + ", (unsigned)" + argument(2) + ")";
    return target() + " = " +
           (is_shared ? "::aiocuda_shared_offset(" + mapped + ")" : "(::aiocuda_device::ptx::Register)" + mapped);
  }

  // Where all parts of the instruction are known. Addresses of the cluster's shared memory tell whose they are.
  void takes_only(std::initializer_list<std::string_view> known) {
    for (std::size_t i = 1; i < parts_.size(); ++i) {
      if (std::find(known.begin(), known.end(), parts_[i]) == known.end()) throw Unsupported{opcode_};
      if (parts_[i] == "shared::cluster") parts_[i] = "shared::cta";
    }
  }

  // The address of an operand in a memory space, whatever the instruction says of its others.
  std::string address_in(std::size_t i, const std::string& space) {
    if (i >= arguments_.size()) throw Unsupported{opcode_ + " with fewer operands"};
    const Words kept = parts_;
    parts_ = {kept[0], space};
    std::string found = address(arguments_[i]);
    parts_ = kept;
    return found;
  }

  std::string phase_barrier() {
    takes_only({"init",      "inval",    "arrive", "arrive_drop",   "noComplete",      "expect_tx", "complete_tx",
                "test_wait", "try_wait", "parity", "pending_count", "release",         "acquire",   "relaxed",
                "cta",       "cluster",  "shared", "shared::cta",   "shared::cluster", "b64"});
    knows_others_ = true;
    const std::string call = library + std::string("barrier_");
    if (has("pending_count")) return target() + " = " + call + "missing(" + argument(1) + ")";
    const bool is_first = has_any({"init", "inval"}) || (!has("arrive") && has_any({"expect_tx", "complete_tx"}));
    const std::string space = has_any({"shared", "shared::cta"}) ? "shared" : "generic";
    const std::string at = address_in(is_first ? 0 : 1, space);
    if (has("init")) return call + "init(" + at + ", " + argument(1) + ")";
    if (has("inval")) return call + "invalidate(" + at + ")";
    if (has_any({"test_wait", "try_wait"})) {
      const std::string parity = has("parity") ? argument(2) : call + "parity(" + argument(2) + ")";
      return target() + " = " + call + "is_past(" + at + ", " + parity + ")";
    }
    const std::string count = arguments_.size() > 2 ? "(unsigned)" + argument(2) : "1";
    if (is_first)
      return call + "arrive(" + at + ", 0, 0, " + (has("complete_tx") ? "-" : "") + "(int)" + argument(1) + ")";
    if (has("expect_tx"))
      return target() + " = " + call + "arrive(" + at + ", 1, " + (has("arrive_drop") ? "1" : "0") + ", (int)" + count +
             ")";
    if (!has_any({"arrive", "arrive_drop"})) throw Unsupported{opcode_};
    return target() + " = " + call + "arrive(" + at + ", " + count + ", " + (has("arrive_drop") ? count : "0") + ", 0)";
  }

  std::string copy_bulk() {
    takes_only({"async", "bulk", "shared::cluster", "shared::cta", "global", "mbarrier::complete_tx::bytes",
                "bulk_group", "commit_group", "wait_group", "read"});
    if (has_any({"commit_group", "wait_group"})) return "(void)0";
    if (arguments_.size() < 3) throw Unsupported{opcode_ + " with fewer operands"};
    const std::size_t to = 3;  // "cp.async.bulk.TO.FROM"
    if (parts_.size() < to + 2) throw Unsupported{opcode_};
    const auto space = [&](std::size_t part) { return parts_[part] == "global" ? "global" : "shared"; };
    std::string code = std::string(library) + "copy_bulk(" + address_in(0, space(to)) + ", " +
                       address_in(1, space(to + 1)) + ", (unsigned)" + argument(2) + ")";
    if (!has("mbarrier::complete_tx::bytes")) return code;
    knows_others_ = true;
    return code + "; " + library + "barrier_arrive(" + address_in(3, "shared") + ", 0, 0, -(int)" + argument(2) + ")";
  }

  // Copies are done by now. Without "noinc" the barrier waits for one thread more, which has then arrived.
  std::string arrive_of_copies() {
    takes_only({"async", "mbarrier", "arrive", "noinc", "shared", "shared::cta", "b64"});
    knows_others_ = true;
    if (!has("noinc")) return "(void)0";
    return std::string(library) + "barrier_arrive(" +
           address_in(0, has_any({"shared", "shared::cta"}) ? "shared" : "generic") + ", 1, 0, 0)";
  }

  // The first lane of the mask is elected.
  std::string elect() {
    const Words targets = split(arguments_.at(0), '|');
    std::string code = "::__syncwarp((unsigned)" + argument(1) + ", " + line_ +
                       "); const unsigned elected = (unsigned)__builtin_ctz((unsigned)" + argument(1) + "); " +
                       place(targets[0]) + " = elected";
    if (targets.size() > 1) code += "; " + place(targets[1]) + " = elected == ::aiocuda_lane()";
    return code;
  }

  std::string vote() {
    const std::string mask = "(unsigned)" + argument(2) + ", ";
    const std::string predicate = argument(1) + " != 0, " + line_ + ")";
    if (has("ballot")) return target() + " = ::__ballot_sync(" + mask + predicate;
    if (has("all")) return target() + " = ::__all_sync(" + mask + predicate;
    if (has("any")) return target() + " = ::__any_sync(" + mask + predicate;
    throw Unsupported{opcode_};
  }

  std::string shuffle() {
    const char kind = has("up") ? 'u' : has("down") ? 'd' : has("bfly") ? 'b' : 'i';
    const Words targets = split(arguments_.at(0), '|');
    std::string code = "const auto moved = " + std::string(library) + "shfl('" + kind + "', " + argument(1) + ", " +
                       argument(2) + ", " + argument(3) + ", " + argument(4) + ", " + line_ + "); " +
                       place(targets[0]) + " = moved.value";
    if (targets.size() > 1) code += "; " + place(targets[1]) + " = moved.is_in_range";
    return code;
  }

  std::string load_matrix() {
    const Words targets = list(arguments_.at(0));
    if (!has("m8n8") || !has("b16") || arguments_.size() < 2) throw Unsupported{opcode_};
    const std::string text = arguments_[1];
    const std::string inside = text.substr(1, text.rfind(']') - 1);
    const std::size_t plus = inside.find('+');
    std::string from = value(inside.substr(0, plus));
    if (plus != std::string::npos) from = "(" + from + " + (" + inside.substr(plus + 1) + "))";
    std::string code = "const ::aiocuda_device::ptx::Register rows = " + from;
    for (std::size_t i = 0; i < targets.size(); ++i)
      code += "; const auto matrix_" + std::to_string(i) + " = " + library + "ldmatrix(rows, " + std::to_string(i) +
              ", " + (has("trans") ? "true" : "false") + ", " + line_ + ")";
    for (std::size_t i = 0; i < targets.size(); ++i)
      code += "; " + place(targets[i]) + " = matrix_" + std::to_string(i);
    return code;
  }

  std::string matrix() {
    // The types of D, A, B and C are the last four parts.
    static const std::map<std::string_view, const char*> numbers = {{"f16", "__half"},
                                                                    {"bf16", "__nv_bfloat16"},
                                                                    {"tf32", "float"},
                                                                    {"s8", "signed char"},
                                                                    {"u8", "unsigned char"}};
    if (parts_.size() < 8 || arguments_.size() != 4 || has("sp") || has("satfinite")) throw Unsupported{opcode_};
    const std::string& of_d = parts_[parts_.size() - 4];
    const std::string& of_a = parts_[parts_.size() - 3];
    const std::string& of_b = parts_[parts_.size() - 2];
    const auto a = numbers.find(of_a);
    const auto b = numbers.find(of_b);
    const Words d_registers = list(arguments_[0]);
    const Words a_registers = list(arguments_[1]);
    const Words b_registers = list(arguments_[2]);
    const Words c_registers = list(arguments_[3]);
    const bool is_known =
        a != numbers.end() && b != numbers.end() && has("row") && has("col") &&
        a_registers.size() == 2 * b_registers.size() && b_registers.size() <= 2 &&
        c_registers.size() == d_registers.size() && of_d == parts_.back() &&
        (of_d == "f16" ? d_registers.size() == 2 : d_registers.size() == 4) &&
        std::any_of(parts_.begin(), parts_.end(), [](const std::string& p) { return p.starts_with("m16n8"); });
    if (!is_known) throw Unsupported{opcode_};
    std::string code = std::string(library) + "MatrixParts parts = {{";
    for (std::size_t i = 0; i < 4; ++i) code += (i < a_registers.size() ? value(a_registers[i]) : "0") + ", ";
    code += "}, {";
    for (std::size_t i = 0; i < 2; ++i) code += (i < b_registers.size() ? value(b_registers[i]) : "0") + ", ";
    code += "}, {";
    for (std::size_t i = 0; i < 4; ++i) code += (i < c_registers.size() ? value(c_registers[i], "f32") : "0") + ", ";
    code += "}}; ::aiocuda_device::ptx::Register sums[4]; " + std::string(library) + "mma<" + a->second + ", " +
            b->second + ", " + std::to_string(b_registers.size()) + ">(parts, " + (of_d == "f16" ? "true" : "false") +
            ", sums, " + line_ + ")";
    for (std::size_t i = 0; i < d_registers.size(); ++i)
      code += "; " + place(d_registers[i]) + " = sums[" + std::to_string(i) + "]";
    return code;
  }
};

}  // namespace aiocuda::emulator::nvrtc::ptx
