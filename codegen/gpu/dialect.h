// The C-like languages that devices compile, as one table: codegen/gpu/print_launch writes straight code in any of
// them. A further one is a row in dialect.cc.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ir/graph/type.h"

namespace hone {

// How values of one type are spelled. In patterns {0}, {1}, {2} are arguments.
struct DialectType {
  DType type = DType::kF32;
  std::string_view value;                  // "float": of a variable
  std::string_view memory;                 // "uchar": of an element, where that is another one
  std::array<std::string_view, 4> vector;  // of 2, 4, 8 and 16 lanes; "" if there are none
  std::array<std::string_view, 4> pack;    // a vector of as many values: "make_float2({0})"
  std::string_view suffix = "";            // of constants

  std::string_view Vector(int lanes) const { return vector[WidthOf(lanes)]; }
  std::string_view Pack(int lanes) const { return pack[WidthOf(lanes)]; }

 private:
  static size_t WidthOf(int lanes) { return static_cast<size_t>(std::bit_width(static_cast<unsigned>(lanes))) - 2; }
};

// Operations on vectors, where they are written otherwise than on numbers; all others are not, and conditions are
// integers of as many lanes. {0}, {1}, {2} are arguments, the last number is how many lanes there are.
struct DialectVectors {
  bool repeats = false;             // one value packs a vector that has it in all lanes
  std::string_view every_second;    // a vector of type {0}: Do::kEverySecond of {1}, {2}
  std::string_view truth;           // a condition of one lane, as a number
  std::string_view convert;         // {1} as vector type {0}
  std::string_view wrapping;        // {0} {1} {2} of i32, {3} lanes: Dialect::wrapping
  std::string_view unsigned_shift;  // {0} >> {1}
  std::string_view bits, from_bits;
};

// Functions on one type of floats.
struct DialectFloat {
  std::string_view fma, abs, floor, round, sqrt, copysign;  // round: of two to the even one
  std::string_view bits, from_bits;                         // to an integer of that size and back
  std::string_view infinity, nan;
};

struct Dialect {
  std::string_view name;  // "opencl": of files and options
  std::string_view prelude;
  std::string_view prelude_f64;        // where there are f64
  std::string_view cast;               // {1} as {0}
  std::string_view unsigned_shift[2];  // {0} >> {1} of an i32 and an i64 whose bits are a number without sign
  std::string_view wrapping;           // {0} {1} {2} of i32, an operator between: around where it leaves the type
  std::string_view function;           // before a function's type
  std::string_view variable[2];        // "const {0} {1}": set once; set again. Type, name
  std::string_view shared;             // an array that the block shares: type, name, elements
  // Where all arrays together are larger than a text may say: the array for all of them (its name), and one in it:
  // type, name, that array, bytes from its start. "": they may be as large as they like.
  std::string_view shared_beyond[2] = {};
  std::string_view barrier;
  std::string_view shuffle;               // Do::kShuffle of {0}, by {1}
  std::string_view prelude_shuffle = "";  // where there are any
  std::string_view keep_loop = "";        // before a loop that must stay one: a line
  std::array<std::string_view, 3> thread, block;

  // Where a launch begins: name, parameters, threads along x, y, z and all together.
  std::string_view head;
  std::string_view parameter[2];  // a buffer that is only read; one that is written: type, name
  std::string_view size;          // a dynamic size: name
  // A vector of lanes of global memory: vector type, buffer, index, lanes. `shared_vectors`: of a block's as well.
  std::string_view load_vector, store_vector;  // the stored value is {4}
  std::string_view element;                    // of global memory: buffer, index
  bool shared_vectors = true;
  // Each launch is a text of its own: GLSL's shaders, and OpenCL's, where drivers keep what they have compiled, and
  // many schedules of a kernel share a launch.
  bool is_text_per_launch = false;
  // GLSL: a launch's parameters are a block of constants, of references that need declarations.
  bool is_shader = false;

  std::span<const DialectType> types;
  DialectFloat f32, f64;
  DialectVectors vectors = {};  // none: only OpenCL's processors compute with vectors
  // Bodies of functions of x: the f32 of an f16, and the nearest f16 of an f32. "": written in integers.
  std::string_view f16_conversions[2] = {};

  const DialectType& Of(DType type) const;
};

// OpenCL C 1.2, CUDA C (for nvcc or NVRTC), GLSL 4.5 for Vulkan 1.2, HIP C++.
std::span<const Dialect> Dialects();
const Dialect* FindDialect(std::string_view name);  // nullptr: there is none

}  // namespace hone
