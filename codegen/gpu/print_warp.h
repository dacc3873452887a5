// What warps do together, in CUDA C: inline PTX.
#pragma once

#include <span>
#include <string>

#include "codegen/instructions.h"

namespace hone {

// The statement; `args` as straight::Node::Kind::kMultiply has them, words as `unsigned`.
std::string MultiplyText(const Instruction& instruction, std::span<const std::string> args);

// What PTX calls it: "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32". REQUIRES: it is of a warp.
std::string_view PtxName(const Instruction& instruction);

}  // namespace hone
