#include "codegen/gpu/dialect.h"

#include "base/check.h"

namespace hone {
namespace {

constexpr DialectType kOpenClTypes[] = {
    {DType::kBool, "bool", "uchar", {"", "int4", "int8", "int16"}, {"", "(int4)({0})", "(int8)({0})", "(int16)({0})"}},
    {DType::kI8,
     "char",
     "char",
     {"char2", "char4", "char8", "char16"},
     {"(char2)({0})", "(char4)({0})", "(char8)({0})", "(char16)({0})"}},
    {DType::kU8,
     "uchar",
     "uchar",
     {"uchar2", "uchar4", "uchar8", "uchar16"},
     {"(uchar2)({0})", "(uchar4)({0})", "(uchar8)({0})", "(uchar16)({0})"}},
    {DType::kF16,
     "ushort",
     "ushort",
     {"ushort2", "ushort4", "ushort8", "ushort16"},
     {"(ushort2)({0})", "(ushort4)({0})", "(ushort8)({0})", "(ushort16)({0})"}},
    {DType::kBF16,
     "ushort",
     "ushort",
     {"ushort2", "ushort4", "ushort8", "ushort16"},
     {"(ushort2)({0})", "(ushort4)({0})", "(ushort8)({0})", "(ushort16)({0})"}},
    {DType::kI32,
     "int",
     "int",
     {"int2", "int4", "int8", "int16"},
     {"(int2)({0})", "(int4)({0})", "(int8)({0})", "(int16)({0})"}},
    {DType::kI64, "long", "long", {"", "", "", ""}, {"", "", "", ""}, "L"},
    {DType::kF32,
     "float",
     "float",
     {"float2", "float4", "float8", "float16"},
     {"(float2)({0})", "(float4)({0})", "(float8)({0})", "(float16)({0})"},
     "f"},
    {DType::kF64,
     "double",
     "double",
     {"double2", "double4", "double8", ""},
     {"(double2)({0})", "(double4)({0})", "(double8)({0})", ""}},
};
constexpr DialectType kCudaTypes[] = {
    {DType::kBool, "bool", "unsigned char", {"", ""}, {"", ""}},
    {DType::kI8, "signed char", "signed char", {"char2", "char4"}, {"make_char2({0})", "make_char4({0})"}},
    {DType::kU8, "unsigned char", "unsigned char", {"uchar2", "uchar4"}, {"make_uchar2({0})", "make_uchar4({0})"}},
    {DType::kF16,
     "unsigned short",
     "unsigned short",
     {"ushort2", "ushort4"},
     {"make_ushort2({0})", "make_ushort4({0})"}},
    {DType::kBF16,
     "unsigned short",
     "unsigned short",
     {"ushort2", "ushort4"},
     {"make_ushort2({0})", "make_ushort4({0})"}},
    {DType::kI32, "int", "int", {"int2", "int4"}, {"make_int2({0})", "make_int4({0})"}},
    {DType::kI64, "long long", "long long", {"", ""}, {"", ""}, "LL"},
    {DType::kF32, "float", "float", {"float2", "float4"}, {"make_float2({0})", "make_float4({0})"}, "f"},
    {DType::kF64, "double", "double", {"double2", ""}, {"make_double2({0})", ""}},
};
constexpr DialectType kGlslTypes[] = {
    {DType::kBool, "bool", "uint8_t", {"", ""}, {"", ""}},
    {DType::kI8, "int8_t", "int8_t", {"i8vec2", "i8vec4"}, {"i8vec2({0})", "i8vec4({0})"}},
    {DType::kU8, "uint8_t", "uint8_t", {"u8vec2", "u8vec4"}, {"u8vec2({0})", "u8vec4({0})"}},
    {DType::kF16, "uint16_t", "uint16_t", {"u16vec2", "u16vec4"}, {"u16vec2({0})", "u16vec4({0})"}},
    {DType::kBF16, "uint16_t", "uint16_t", {"u16vec2", "u16vec4"}, {"u16vec2({0})", "u16vec4({0})"}},
    {DType::kI32, "int", "int", {"ivec2", "ivec4"}, {"ivec2({0})", "ivec4({0})"}},
    {DType::kI64, "int64_t", "int64_t", {"", ""}, {"", ""}, "L"},
    {DType::kF32, "float", "float", {"vec2", "vec4"}, {"vec2({0})", "vec4({0})"}, "f"},
    {DType::kF64, "double", "double", {"dvec2", ""}, {"dvec2({0})", ""}, "lf"},
};

constexpr Dialect kCuda = {
    .name = "cuda",
    .prelude = "// --fmad=false: sums of products are fused where fmaf says so, and nowhere else.\n",
    .prelude_f64 = "",
    .cast = "({0})({1})",
    .unsigned_shift = {"(int)((unsigned){0} >> {1})", "(long long)((unsigned long long){0} >> {1})"},
    .wrapping = "((int)((unsigned){0} {1} (unsigned){2}))",
    .function = "static __device__ __forceinline__ ",
    .variable = {"const {0} {1}", "{0} {1}"},
    .shared = "__shared__ __align__({3}) {0} {1}[{2}]",
    .shared_beyond = {"extern __shared__ __align__(1024) unsigned char {0}[]",
                      "{0}* const {1} = reinterpret_cast<{0}*>({2} + {3})"},
    .barrier = "__syncthreads()",
    .shuffle = "__shfl_xor_sync(0xffffffffu, {0}, {1})",
    .keep_loop = "#pragma unroll 1",
    .thread = {"(int)threadIdx.x", "(int)threadIdx.y", "(int)threadIdx.z"},
    .block = {"(int)blockIdx.x", "(int)blockIdx.y", "(int)blockIdx.z"},
    .head = "extern \"C\" __global__ void __launch_bounds__({5}) {0}({1}) {{\n",
    .parameter = {"const {0}* __restrict__ {1}", "{0}* __restrict__ {1}"},
    .size = "int {0}",
    .load_vector = "*reinterpret_cast<const {0}*>({1} + {2})",
    .store_vector = "*reinterpret_cast<{0}*>({1} + {2}) = {4}",
    .element = "{0}[{1}]",
    .types = kCudaTypes,
    .f32 = {"fmaf({0}, {1}, {2})", "fabsf({0})", "floorf({0})", "rintf({0})", "sqrtf({0})", "copysignf({0}, {1})",
            "__float_as_int({0})", "__int_as_float({0})", "__int_as_float(0x7f800000)", "__int_as_float(0x7fc00000)"},
    .f64 = {"fma({0}, {1}, {2})", "fabs({0})", "floor({0})", "rint({0})", "sqrt({0})", "copysign({0}, {1})",
            "__double_as_longlong({0})", "__longlong_as_double({0})", "__longlong_as_double(0x7ff0000000000000LL)",
            "__longlong_as_double(0x7ff8000000000000LL)"},
    .f16_conversions = {"float y; asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(y) : \"h\"(x)); return y;",
                        "unsigned short y; asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(y) : \"f\"(x)); return y;"},
};

// CUDA's spelling, without what is NVIDIA's alone. No driver here takes it: for who compiles it elsewhere.
constexpr Dialect Hip() {
  Dialect hip = kCuda;
  hip.name = "hip";
  hip.prelude = "#include <hip/hip_runtime.h>\n#pragma STDC FP_CONTRACT OFF\n";
  hip.shared = "__shared__ {0} {1}[{2}] __attribute__((aligned({3})))";
  hip.shared_beyond[0] = hip.shared_beyond[1] = "";
  hip.shuffle = "__shfl_xor({0}, {1})";
  hip.f16_conversions[0] = hip.f16_conversions[1] = "";
  return hip;
}

constexpr Dialect kDialects[] = {
    {
        .name = "opencl",
        .prelude = "#pragma OPENCL FP_CONTRACT OFF\n",
        .prelude_f64 = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n",
        .cast = "({0})({1})",
        .unsigned_shift = {"(int)((uint){0} >> {1})", "(long)((ulong){0} >> {1})"},
        .wrapping = "((int)((uint){0} {1} (uint){2}))",
        .function = "static ",
        .variable = {"const {0} {1}", "{0} {1}"},
        .shared = "__local {0} {1}[{2}] __attribute__((aligned(16)))",
        .barrier = "barrier(CLK_LOCAL_MEM_FENCE)",
        .shuffle = "sub_group_shuffle_xor({0}, {1}u)",
        .prelude_shuffle = "#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable\n",
        .keep_loop = "#pragma unroll 1",
        .thread = {"get_local_id(0)", "get_local_id(1)", "get_local_id(2)"},
        .block = {"get_group_id(0)", "get_group_id(1)", "get_group_id(2)"},
        .head = "__kernel __attribute__((reqd_work_group_size({2}, {3}, {4})))\nvoid {0}({1}) {{\n",
        .parameter = {"__global const {0}* restrict {1}", "__global {0}* restrict {1}"},
        .size = "int {0}",
        .load_vector = "vload{3}(0, {1} + {2})",
        .store_vector = "vstore{3}({4}, 0, {1} + {2})",
        .element = "{0}[{1}]",
        .is_text_per_launch = true,
        .types = kOpenClTypes,
        .f32 = {"fma({0}, {1}, {2})", "fabs({0})", "floor({0})", "rint({0})", "sqrt({0})", "copysign({0}, {1})",
                "as_int({0})", "as_float({0})", "INFINITY", "NAN"},
        .f64 = {"fma({0}, {1}, {2})", "fabs({0})", "floor({0})", "rint({0})", "sqrt({0})", "copysign({0}, {1})",
                "as_long({0})", "as_double({0})", "(double)INFINITY", "(double)NAN"},
        .vectors = {.repeats = true,
                    .every_second = "({0})({1}.even, {2}.odd)",
                    .truth = "({0} ? -1 : 0)",
                    .convert = "convert_{0}({1})",
                    .wrapping = "as_int{3}(as_uint{3}({0}) {1} as_uint{3}({2}))",
                    .unsigned_shift = "as_int{2}(as_uint{2}({0}) >> as_uint{2}({1}))",
                    .bits = "as_int{1}({0})",
                    .from_bits = "as_float{1}({0})"},
    },
    kCuda,
    {
        .name = "glsl",
        .prelude = "#version 450\n"
                   "// NoContraction, SignedZeroInfNanPreserve: sums of products are fused where fma says so, and "
                   "nowhere else.\n"
                   "#extension GL_EXT_buffer_reference : require\n"
                   "#extension GL_EXT_scalar_block_layout : require\n"
                   "#extension GL_EXT_shader_explicit_arithmetic_types : require\n",
        .prelude_f64 = "",
        .cast = "{0}({1})",
        .unsigned_shift = {"int(uint({0}) >> {1})", "int64_t(uint64_t({0}) >> {1})"},
        .wrapping = "({0} {1} {2})",
        .function = "",
        .variable = {"const {0} {1}", "{0} {1}"},
        .shared = "shared {0} {1}[{2}]",
        .barrier = "memoryBarrierShared(); barrier()",
        .shuffle = "subgroupShuffleXor({0}, {1}u)",
        .prelude_shuffle = "#extension GL_KHR_shader_subgroup_shuffle : require\n",
        .thread = {"int(gl_LocalInvocationID.x)", "int(gl_LocalInvocationID.y)", "int(gl_LocalInvocationID.z)"},
        .block = {"int(gl_WorkGroupID.x)", "int(gl_WorkGroupID.y)", "int(gl_WorkGroupID.z)"},
        .head = "layout(local_size_x = {2}, local_size_y = {3}, local_size_z = {4}) in;\n"
                "layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Arguments {{\n{1}}};\n"
                "layout(push_constant) uniform Call {{ Arguments args; }};\n",
        .parameter = {"  Of_{0} {1};\n", "  Of_{0} {1};\n"},
        .size = "  int {0};\n",
        .load_vector = "Of_{0}(args.{1}).at[({2}) / {3}]",
        .store_vector = "Of_{0}(args.{1}).at[({2}) / {3}] = {4}",
        .element = "args.{0}.at[{1}]",
        .shared_vectors = false,
        .is_text_per_launch = true,
        .is_shader = true,
        .types = kGlslTypes,
        .f32 = {"fma({0}, {1}, {2})", "abs({0})", "floor({0})", "roundEven({0})", "sqrt({0})",
                "intBitsToFloat((floatBitsToInt({0}) & 0x7fffffff) | (floatBitsToInt({1}) & (1 << 31)))",
                "floatBitsToInt({0})", "intBitsToFloat({0})", "intBitsToFloat(0x7f800000)",
                "intBitsToFloat(0x7fc00000)"},
        .f64 = {"fma({0}, {1}, {2})", "abs({0})", "floor({0})", "roundEven({0})", "sqrt({0})",
                "int64BitsToDouble((doubleBitsToInt64({0}) & 0x7fffffffffffffffL) | (doubleBitsToInt64({1}) & (1L << "
                "63)))",
                "doubleBitsToInt64({0})", "int64BitsToDouble({0})", "int64BitsToDouble(0x7ff0000000000000L)",
                "int64BitsToDouble(0x7ff8000000000000L)"},
    },
    Hip(),
};

}  // namespace

const DialectType& Dialect::Of(DType type) const {
  for (const DialectType& known : types)
    if (known.type == type) return known;
  HONE_CHECK(!"a type that code for GPUs knows");
  return types[0];
}

std::span<const Dialect> Dialects() { return kDialects; }

const Dialect* FindDialect(std::string_view name) {
  for (const Dialect& dialect : kDialects)
    if (dialect.name == name) return &dialect;
  return nullptr;
}

}  // namespace hone
