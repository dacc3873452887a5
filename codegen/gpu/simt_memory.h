// Memory of the machine model: elements, and beside each of them who touched it last.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph/type.h"

namespace hone::simt {

// Who does something: thread `thread` of block `block`, after `interval` barriers of the block.
struct Actor {
  int64_t block = -1;
  int64_t thread = -1;
  int64_t interval = 0;
  int64_t fences = 0;  // of the thread's writes, before products that read them (straight::Node::Kind::kFenceStorage)
};

class Memory {
 public:
  // `data`: `elements` of that type; nullptr: the memory is this object's.
  Memory(std::string name, DType type, int64_t elements, void* data, bool is_written);

  const std::string& name() const { return name_; }
  DType type() const { return type_; }
  int64_t elements() const { return elements_; }

  // What is wrong with the access; "" if nothing is. Notes it.
  std::string Read(int64_t index, const Actor& actor);
  std::string Write(int64_t index, const Actor& actor);

  // Who wrote it last. REQUIRES: it is one of the elements.
  const Actor& WriterOf(int64_t index) const { return traces_[static_cast<size_t>(index)].writer; }

  double Load(int64_t index) const;
  void Store(int64_t index, double value);

  // A launch ended: what it wrote is there for all. `forget`: so is the memory itself, as that of a block.
  void Settle(bool forget);

 private:
  struct Trace {
    Actor writer, reader;
    bool several_threads = false;  // read it in the reader's interval
    bool several_blocks = false;
    bool is_written = false;
  };

  std::string Race(int64_t index, const Actor& a, const Actor& b, bool both_write) const;

  std::string name_;
  DType type_;
  int64_t elements_;
  std::vector<std::byte> own_;
  void* data_;
  std::vector<Trace> traces_;
};

}  // namespace hone::simt
