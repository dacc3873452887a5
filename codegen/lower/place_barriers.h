// Where the threads of a block have to wait for each other: between two accesses to an element of block storage by
// different threads, of which one writes it.
#pragma once

#include "codegen/lower/program.h"

namespace hone {

// Puts barriers into a launch's nest, as few and as far out as it finds: none between accesses of which it can tell
// that they are of the same thread or of other elements. Those of later trips of a loop count as well.
void PlaceBarriers(const LoopProgram& program, Stmt& nest);

}  // namespace hone
