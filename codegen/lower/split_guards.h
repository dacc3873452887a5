// Guards that cannot fail before a loop's last trips are left out of the others.
#pragma once

#include "codegen/lower/program.h"

namespace hone {

// The nest with its innermost serial loops divided where that leaves a part in which guards always hold: the loop over
// that part has none of them, the loop over the rest is as it was. A row of 197 elements taken 64 at a time pays for
// masks in its last step alone.
StmtPtr SplitGuardedLoops(const LoopProgram& program, const Stmt& nest);

}  // namespace hone
