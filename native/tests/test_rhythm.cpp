// When a thread that waits for a device looks again.
#include <doctest/doctest.h>

#include <algorithm>

#include "rhythm.hpp"

using aiocuda::Rhythm;
using namespace std::chrono_literals;

TEST_CASE("at first it looks without a pause, then it sleeps a 32nd of the time that nothing came") {
  const Rhythm rhythm;
  CHECK(rhythm.pause(0us) == 0us);
  CHECK(rhythm.pause(49us) == 0us);
  CHECK(rhythm.pause(50us) == 5us);
  CHECK(rhythm.pause(3200us) == 100us);
  CHECK(rhythm.pause(16ms) == 500us);
  CHECK(rhythm.pause(10s) == 500us);
}

TEST_CASE("when what came before is due again it looks without a pause") {
  Rhythm rhythm;
  for (int i = 0; i < 20; ++i) rhythm.note(5ms);
  CHECK(rhythm.pause(0us) == 5us);  // nothing is likely yet
  CHECK(rhythm.pause(1ms) == 250us);
  CHECK(rhythm.pause(4850us) == 100us);  // and does not sleep beyond the time when it is due
  CHECK(rhythm.pause(4949us) == 1us);
  CHECK(rhythm.pause(4950us) == 0us);
  CHECK(rhythm.pause(5049us) == 0us);
  CHECK(rhythm.pause(5056us) == 158us);
}

TEST_CASE("the better its guesses are, the shorter it looks without a pause") {
  Rhythm rhythm;
  for (int i = 0; i < 20; ++i) rhythm.note(1ms);
  CHECK(rhythm.pause(400us) == 100us);
  CHECK(rhythm.pause(949us) == 1us);
  CHECK(rhythm.pause(950us) == 0us);
  CHECK(rhythm.pause(1049us) == 0us);
  CHECK(rhythm.pause(1050us) == 32812ns);
}

TEST_CASE("without a rhythm looks are rare until something has come of late, and then it is late by a 32nd") {
  Rhythm rhythm;
  rhythm.note(1000us);  // this and all others are of one kind, so nothing tells them apart
  for (int i = 0; i < 16; ++i) rhythm.note(i % 2 ? 560us : 1000us);
  CHECK(rhythm.pause(0us) == 5us);
  CHECK(rhythm.pause(400us) == 90us);  // an eighth before the soonest
  CHECK(rhythm.pause(490us) == 15312ns);
  CHECK(rhythm.pause(780us) == 24375ns);  // the mean, which is not waited for without a pause
}

TEST_CASE("looks are not rare before sixteen have come") {
  Rhythm rhythm;
  rhythm.note(1000us);
  for (int i = 0; i < 15; ++i) rhythm.note(i % 2 ? 560us : 1000us);
  CHECK(rhythm.pause(0us) == 0us);
  CHECK(rhythm.pause(320us) == 10us);
}

TEST_CASE("one that comes sooner is remembered for sixteen") {
  Rhythm rhythm;
  rhythm.note(4200us);
  for (int i = 0; i < 16; ++i) rhythm.note(i % 2 ? 4200us : 8000us);
  CHECK(rhythm.pause(1600us) == 400us);
  rhythm.note(1024us);
  rhythm.note(4200us);  // of another kind, as it follows that one
  CHECK(rhythm.pause(1600us) == 50us);
  for (int i = 0; i < 15; ++i) rhythm.note(i % 2 ? 4200us : 8000us);
  CHECK(rhythm.pause(1600us) == 50us);
  rhythm.note(4200us);
  CHECK(rhythm.pause(1600us) == 400us);
}

TEST_CASE("what comes next is guessed by what came before it") {
  Rhythm rhythm;
  for (int i = 0; i < 20; ++i) rhythm.note(i % 2 ? 30us : 2ms);
  CHECK(rhythm.pause(800us) == 200us);  // 2 ms are next
  CHECK(rhythm.pause(2ms) == 0us);
  rhythm.note(2ms);
  CHECK(rhythm.pause(0us) == 0us);  // 30 us are next
  CHECK(rhythm.pause(2ms) == 62500ns);
}

TEST_CASE("a rhythm that has changed is learned again") {
  Rhythm rhythm;
  for (int i = 0; i < 20; ++i) rhythm.note(1000us);
  for (int i = 0; i < 2; ++i) rhythm.note(600us);
  CHECK(rhythm.pause(600us) == 18750ns);
  for (int i = 0; i < 30; ++i) rhythm.note(600us);
  CHECK(rhythm.pause(320us) == 80us);
  CHECK(rhythm.pause(600us) == 0us);
}

TEST_CASE("a time of rest that was long is no reason to look on for long") {
  Rhythm rhythm;
  for (int i = 0; i < 100; ++i) rhythm.note(60s);
  CHECK(rhythm.pause(60s - 51us) == 1us);
  CHECK(rhythm.pause(60s) == 0us);
  CHECK(rhythm.pause(60s + 50us) == 500us);
}
