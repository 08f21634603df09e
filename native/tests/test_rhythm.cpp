// When a thread that waits for a device looks again.
#include <doctest/doctest.h>

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

TEST_CASE("when what came last is due again it looks without a pause") {
  Rhythm rhythm;
  rhythm.note(5ms);
  CHECK(rhythm.pause(1ms) == 31250ns);
  CHECK(rhythm.pause(4700us) == 100us);  // and does not sleep beyond the time when it is due
  CHECK(rhythm.pause(4799us) == 1us);
  CHECK(rhythm.pause(4800us) == 0us);
  CHECK(rhythm.pause(5199us) == 0us);
  CHECK(rhythm.pause(5200us) == 162500ns);
  rhythm.note(800us);
  CHECK(rhythm.pause(700us) == 0us);
  CHECK(rhythm.pause(899us) == 0us);
  CHECK(rhythm.pause(900us) == 28125ns);
}

TEST_CASE("a time of rest that was long is no reason to look on for long") {
  Rhythm rhythm;
  rhythm.note(60s);
  CHECK(rhythm.pause(60s - 201us) == 1us);
  CHECK(rhythm.pause(60s) == 0us);
  CHECK(rhythm.pause(60s + 200us) == 500us);
}
