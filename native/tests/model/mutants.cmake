# Protocols with one defect each: the models must find it. A mutant is the protocols' headers with one place changed,
# and the model of that protocol, which fails with the complaint that is named here. The header without the change is
# what `native_models` runs.
#
# Always true: the place is there exactly once, so a change of a header cannot take a mutant away unseen.
set(mutants_dir "${CMAKE_CURRENT_BINARY_DIR}/mutants")
file(GLOB protocol_headers RELATIVE "${PROJECT_SOURCE_DIR}/native"
  "${PROJECT_SOURCE_DIR}/native/*.hpp" "${PROJECT_SOURCE_DIR}/native/completion/*.hpp"
  "${PROJECT_SOURCE_DIR}/native/staging/*.hpp")
add_library(native_model_scheduler OBJECT main.cpp model/scheduler.cpp)

function(use_models_settings target)
  target_include_directories(${target} SYSTEM PRIVATE "${PROJECT_SOURCE_DIR}/emulator/tests/third_party")
  target_link_libraries(${target} PRIVATE aiocuda_language)
  target_compile_options(${target} PRIVATE -U_FORTIFY_SOURCE -O1)
endfunction()
use_models_settings(native_model_scheduler)

# `model`: the file with the program. `case`: its name, where a comma is a star. `complaint`: a part of the failure.
function(add_mutant name header before after model case complaint)
  set(directory "${mutants_dir}/${name}")
  foreach(each IN LISTS protocol_headers)
    if(NOT each STREQUAL header)
      configure_file("${PROJECT_SOURCE_DIR}/native/${each}" "${directory}/${each}" COPYONLY)
    endif()
  endforeach()
  set(original "${PROJECT_SOURCE_DIR}/native/${header}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${original}")
  file(READ "${original}" text)
  string(LENGTH "${text}" length)
  string(LENGTH "${before}" before_length)
  string(REPLACE "${before}" "" without "${text}")
  string(LENGTH "${without}" length_without)
  math(EXPR removed "${length} - ${length_without}")
  if(NOT removed EQUAL before_length)
    message(FATAL_ERROR "The mutant ${name} changes a place that is not in ${header} exactly once: ${before}")
  endif()
  string(REPLACE "${before}" "${after}" text "${text}")
  file(CONFIGURE OUTPUT "${directory}/${header}" CONTENT "${text}" @ONLY)
  set(target "native_mutant_${name}")
  add_executable(${target} "model/${model}.cpp" $<TARGET_OBJECTS:native_model_scheduler>)
  target_include_directories(${target} PRIVATE "${directory}")
  use_models_settings(${target})
  add_test(NAME "mutant_${name}" COMMAND ${target} "--test-case=${case}" --abort-after=1)
  set_property(TEST "mutant_${name}" PROPERTY PASS_REGULAR_EXPRESSION "CHECK\\( ${complaint}")
endfunction()

# --- the table of flags and the points

add_mutant(a_new_flag_is_seen_late completion/flag_table.hpp
  "has_incoming_.store(true, std::memory_order_seq_cst)" "has_incoming_.store(true, std::memory_order_release)"
  test_reactor "the reactor does not fall asleep over a new flag"
  "a wait ended by its time-out: the reactor slept while something new was there")
add_mutant(a_new_point_is_seen_late completion/points.hpp
  "has_incoming_.store(true, std::memory_order_seq_cst)" "has_incoming_.store(true, std::memory_order_release)"
  test_reactor "the reactor does not fall asleep over a new point"
  "a wait ended by its time-out: the reactor slept while something new was there")
add_mutant(waits_of_a_slot_stay_as_they_came completion/flag_table.hpp
  "std::prev(place)->ticket.number - watched.ticket.number) > 0)"
  "std::prev(place)->ticket.number - watched.ticket.number) > 9)"
  test_reactor "waits of one slot that two threads arm*" "it does not end")

# --- the reactor

add_mutant(the_reactor_sleeps_without_a_last_look completion/reactor.hpp
  "if (!slots_.has_incoming() && !points_.has_incoming() && !pending_.is_stopped())" "if (!pending_.is_stopped())"
  test_reactor "the reactor does not fall asleep over a new flag"
  "a wait ended by its time-out: the reactor slept while something new was there")
add_mutant(the_reactor_is_seen_asleep_late completion/reactor.hpp
  "is_asleep_.store(true, std::memory_order_seq_cst)" "is_asleep_.store(true, std::memory_order_release)"
  test_reactor "the reactor does not fall asleep over a new flag"
  "a wait ended by its time-out: the reactor slept while something new was there")
add_mutant(the_reactor_is_woken_without_its_lock completion/reactor.hpp
  "    {
      std::lock_guard lock(mutex_);
    }
    woken_" "    woken_"
  test_reactor "the reactor does not fall asleep over a new flag"
  "a wait ended by its time-out: the reactor slept while something new was there")

# --- completions, what is pending, and ports

add_mutant(a_completion_ends_twice completion/completion.hpp
  "if (ended_) return;
      if (error" "if (error"
  test_completions "of two errors the first is a completion's*" "a token was told another error")
add_mutant(a_completion_wakes_no_thread completion/completion.hpp
  "    changed_.notify_all();
" ""
  test_completions "who waits for a completion in a thread*" "a wait ended by its time-out: nobody woke it")
add_mutant(a_token_is_withdrawn_and_told completion/completion.hpp
  "    waiting_.erase(found);
" ""
  test_completions "a token is either told or withdrawn" "a token was told and withdrawn, or neither")
add_mutant(what_is_pending_wakes_nobody completion/completion.hpp
  "    if (parts_.size() == 1) became_busy_.notify_all();
" ""
  test_completions "what is pending wakes who has nothing to do*" "all threads wait")
add_mutant(a_port_signals_the_second_token completion/port.hpp
  "due_.size() == 1" "due_.size() == 2"
  test_completions "a loop that sleeps until its port is readable*" "all threads wait")
add_mutant(a_closed_port_keeps_tokens completion/port.hpp
  "    if (closed_) return orphans_.add(token);
" ""
  test_completions "a port that is closed meanwhile*" "a token was lost, or came twice")

# --- lines

add_mutant(who_leaves_hands_nothing_on completion/line.hpp
  "turn.state_ == Turn::State::called ? 1 : 0" "0"
  test_lines "who leaves hands its turn on*" "a wait ended by its time-out: somebody was not called")
add_mutant(a_turn_that_is_not_taken_stays completion/line.hpp
  "each != line.called.end();) each = make_overdue(line, each);" "each != each;) each = make_overdue(line, each);"
  test_lines "a turn that was called and not taken*" "a wait ended by its time-out: somebody was not called")

# --- the rings of pageable memory

add_mutant(a_chunk_is_granted_before_it_is_filled staging/copy_threads.hpp
  "chunk.transfer->way == Way::fill ? chunk.is_carried()" "chunk.transfer->way == Way::fill ? is_free(ring, chunk)"
  test_copy_threads "who hands over may carry a chunk himself*" "the device has other bytes")
add_mutant(a_part_of_the_ring_is_filled_too_early staging/copy_threads.hpp
  "has_reached(ring.finished_, chunk.after) &&" "has_reached(ring.granted_, chunk.after) &&"
  test_copy_threads "bytes reach the device through a ring*" "the device has other bytes")
add_mutant(host_memory_is_read_before_it_is_written staging/copy_threads.hpp
  "if (each->way == Way::drain && each->host.meets(transfer.host)) transfer"
  "if (each->way == Way::store && each->host.meets(transfer.host)) transfer"
  test_copy_threads "host memory that is written and then read*" "it was read before it was written")

# --- the handing over of calls

add_mutant(an_item_is_seen_late handover.hpp
  "given_.store(given_.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst)"
  "given_.store(given_.load(std::memory_order_relaxed) + 1, std::memory_order_release)"
  test_handover "a thread that fell asleep between two items*" "it does not end")
add_mutant(two_have_the_baton handover.hpp
  "if (has_baton_.exchange(true, std::memory_order_acquire)) return false;" "has_baton_.store(true);"
  test_handover "the giver and the thread perform items in one order*" "an item was performed twice")
add_mutant(a_call_is_remembered_for_ever handover.hpp
  "    is_called_.store(false, std::memory_order_seq_cst);
" ""
  test_handover "a thread that is called in vain*" "it does not end")
add_mutant(an_item_wakes_without_the_lock handover.hpp
  "    {
      std::lock_guard lock(mutex_);
    }
    woken_" "    woken_"
  test_handover "a thread that fell asleep between two items*" "all threads wait")
