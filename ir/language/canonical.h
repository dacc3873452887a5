// The canonical form of a kernel: what the cache compares.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph/kernel.h"

namespace hone {

struct Canonical {
  std::string text;            // kernel language; parses back to an equal kernel; equal texts, equal functions
  std::string class_text;      // operations, dtypes and const flags; sizes and options (accuracy, threads) left out
  std::vector<int64_t> shape;  // values of the sizes in class_text, in order; a range gives lo, hi
};

// Tensors become t0, t1 … (operands keep their order, intermediates follow in the order of their stages), axes of each
// stage i0, i1 … (i8_, since i8 is a type), sizes s0, s1 … by first mention, so spellings that differ in names only
// have one text. In the class an extent that is a literal becomes a size too.
Canonical Canonicalize(const Kernel& kernel);

// The kernel with those names, as ParseKernel(Canonicalize(kernel).text) gives it.
Kernel WithCanonicalNames(const Kernel& kernel);

// What a canonical text says of `threads` on a target of so many cores, so that one number has one text: nothing (0)
// for all cores, as if no number had been given; but one thread is always said, because code for it does not fork.
int ThreadsToSay(int threads, int cores);

// The number of threads that a canonical text says; 0: none.
int ThreadsSaidBy(std::string_view canonical);
// The canonical text of the same kernel for another number of threads, 0: for none in particular. What is no canonical
// text comes back as it is.
std::string WithThreads(std::string_view canonical, int threads);
// Whether two canonical texts differ in their numbers of threads at most: they compute the same.
bool SameButThreads(std::string_view a, std::string_view b);

}  // namespace hone
