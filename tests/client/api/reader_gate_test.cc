#include "client/api/reader_gate.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace hone {
namespace {

TEST(ReaderGate, GraceIsOverAtOnceWhereNobodyIsInside) {
  ReaderGate gate;
  for (int i = 0; i < 5; ++i) {
    gate.BeginGrace();
    EXPECT_TRUE(gate.GraceIsOver());
  }
}

TEST(ReaderGate, WaitsForWhoWasInsideAndNotForWhoComesLater) {
  ReaderGate gate;
  for (int round = 0; round < 4; ++round) {  // in either phase
    auto before = std::make_optional<ReaderGate::Entry>(gate);
    gate.BeginGrace();
    EXPECT_FALSE(gate.GraceIsOver());
    ReaderGate::Entry later(gate);
    EXPECT_FALSE(gate.GraceIsOver());
    before.reset();
    EXPECT_TRUE(gate.GraceIsOver());
    EXPECT_TRUE(gate.GraceIsOver());
  }
}

TEST(ReaderGate, NewcomersInAnyNumberDoNotKeepTheWriterFromFindingOut) {
  ReaderGate gate;
  auto first = std::make_optional<ReaderGate::Entry>(gate);
  gate.BeginGrace();
  EXPECT_FALSE(gate.GraceIsOver());  // newcomers have another pair from here on
  auto second = std::make_optional<ReaderGate::Entry>(gate);
  first.reset();
  EXPECT_TRUE(gate.GraceIsOver());  // though somebody has been inside all the time
  gate.BeginGrace();
  EXPECT_FALSE(gate.GraceIsOver());
  second.reset();
  EXPECT_TRUE(gate.GraceIsOver());
}

TEST(ReaderGate, CountsEntriesOverAllThreads) {
  ReaderGate gate;
  std::vector<std::thread> threads;
  for (int i = 0; i < 20; ++i) {  // more than there are slots
    threads.emplace_back([&] {
      for (int call = 0; call < 500; ++call) ReaderGate::Entry entry(gate);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(gate.entries(), 10'000u);
}

// What readers look up is never released under them. Under the thread or address sanitizer a mistake is an error even
// where the numbers happen to be right.
TEST(ReaderGate, NothingIsReleasedWhileSomebodyReadsIt) {
  struct Value {
    explicit Value(uint64_t number) : number(number), twice(2 * number) {}
    ~Value() { number = twice = 1; }
    uint64_t number, twice;
  };
  ReaderGate gate;
  std::atomic<Value*> current{new Value(0)};
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      for (int round = 0; !stop; ++round) {
        if (round % 256 == 0) std::this_thread::yield();  // else each would be interrupted inside, and the writer waits
        ReaderGate::Entry inside(gate);
        Value* value = current.load(std::memory_order_seq_cst);
        for (int look = 0; look < 20; ++look) {
          if (*const_cast<volatile uint64_t*>(&value->twice) != 2 * *const_cast<volatile uint64_t*>(&value->number))
            ++wrong;
        }
      }
    });
  }
  for (uint64_t number = 1; number <= 500 || gate.entries() < 1'000'000; ++number) {
    std::unique_ptr<Value> old(current.exchange(new Value(number), std::memory_order_seq_cst));
    gate.BeginGrace();
    while (!gate.GraceIsOver()) std::this_thread::yield();
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  delete current.load();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace hone
