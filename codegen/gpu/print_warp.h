// What CUDA C has no words for, as inline PTX: what warps do together, and copies that threads do not wait for.
#pragma once

#include <span>
#include <string>

#include "codegen/gpu/straight.h"
#include "codegen/instructions.h"

namespace hone {

// The statement; `args` as straight::Node::Kind::kMultiply has them, words as `unsigned`.
std::string MultiplyText(const Instruction& instruction, std::span<const std::string> args);

// A product of a group of warps: `sums` as straight::Node::Kind::kProduct has them, and where its operands begin.
std::string ProductText(const straight::Node& product, std::span<const std::string> sums, const std::string& first,
                        const std::string& second);
// What groups copies ahead and products, waits for them and fences them. What `sums` hold is settled there, for the
// compiler as well.
std::string OrderText(const straight::Node& node, std::span<const std::string> sums);

// A copy of so many bytes past the registers: where to, where from, and a condition ("": none), else zeros.
std::string CopyAheadText(int64_t bytes, const std::string& to, const std::string& from, const std::string& condition);

// A helper that loads the words of matrices (straight::Do::kMatrices): what it is called before its type, and the
// function "hone_" + `helper`; "": that is no such helper's name.
std::string MatricesName(int matrices, bool transposes);
std::string MatricesText(std::string_view function, const std::string& helper);

// What PTX calls it, without its operands: "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16",
// "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32". REQUIRES: it is of a warp.
std::string_view PtxName(const Instruction& instruction);

}  // namespace hone
