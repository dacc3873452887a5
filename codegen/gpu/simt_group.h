// Products of a group of warps in the machine model: each is on its way until its group has been waited for. Then its
// operands are read a second time and its sums are there; before, nobody may read these or write those.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "codegen/gpu/simt_memory.h"
#include "codegen/gpu/simt_values.h"

namespace hone::simt {

// What a product sees of a thread.
struct GroupThread {
  IdVector<straight::ValueId, Slot>* slots = nullptr;
  int64_t a = 0, b = 0;  // where the operands begin, elements
};

class GroupProducts {
 public:
  // `find` notes what is wrong. `has_fenced`: whether a thread's writes up to its fence number … are there for
  // products.
  GroupProducts(std::function<void(std::string)> find, std::function<Memory&(BufferId)> memory,
                std::function<bool(const Actor& writer)> has_fenced)
      : find_(std::move(find)), memory_(std::move(memory)), has_fenced_(std::move(has_fenced)) {}

  void Begin(const straight::Node& node, std::span<const GroupThread> threads, const Actor& actor);
  void Commit();
  void Await(size_t groups, std::span<const GroupThread> threads, const Actor& actor);
  bool IsIdle() const { return open_.empty() && groups_.empty(); }

 private:
  struct Product {
    const straight::Node* node;
    int64_t at[2];
    std::vector<double> read[2];  // [lines, steps] of each operand
  };
  std::vector<double> ReadMatrix(const straight::Node& node, size_t operand, int64_t at, const Actor& actor,
                                 bool begins);
  void End(const Product& product, std::span<const GroupThread> threads);

  std::function<void(std::string)> find_;
  std::function<Memory&(BufferId)> memory_;
  std::function<bool(const Actor&)> has_fenced_;
  std::vector<Product> open_;
  std::deque<std::vector<Product>> groups_;
  std::map<straight::ValueId, int> adding_;  // products on their way, by a sum that they add to
};

}  // namespace hone::simt
