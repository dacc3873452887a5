#include "backends/gpu/compile_glsl.h"

#if HONE_HAS_GLSLANG
#include <glslang/Include/glslang_c_interface.h>
#include <glslang/Public/resource_limits_c.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <vector>

#include "base/check.h"

namespace hone {
namespace {

using Words = std::vector<uint32_t>;

// SPIR-V's numbers (specification, 2.3 "Physical Layout", 3.49 "Instructions").
constexpr size_t kHeader = 5;  // words
constexpr uint32_t kExtInst = 12, kEntryPoint = 15, kExecutionMode = 16, kCapability = 17, kTypeVoid = 19,
                   kTypeForwardPointer = 39, kDecorate = 71, kMemberDecorate = 72, kFNegate = 127, kFAdd = 129,
                   kFSub = 131, kFMul = 133, kFDiv = 136, kVectorTimesScalar = 142;
constexpr uint32_t kArithmetic[] = {kExtInst, kFNegate, kFAdd, kFSub, kFMul, kFDiv, kVectorTimesScalar};
constexpr uint32_t kFloat64 = 10, kPreserve = 4466, kPreserveMode = 4461;  // SignedZeroInfNanPreserve
constexpr uint32_t kNoContraction = 42;

void Append(Words& to, std::initializer_list<uint32_t> instruction) {
  to.insert(to.end(), instruction);
  to[to.size() - instruction.size()] |= static_cast<uint32_t>(instruction.size()) << 16;
}

// Arithmetic is done as it is written: GLSL cannot say that of infinities and NaN, and by `precise` of what is assigned
// to variables alone, not of what is stored, compared or handed to functions.
Words WithExactArithmetic(const Words& module) {
  Words modes, decorations, exact(module.begin(), module.begin() + kHeader);
  bool has_f64 = false;
  for (size_t at = kHeader; at < module.size(); at += module[at] >> 16) {
    const uint32_t op = module[at] & 0xffff;
    has_f64 |= op == kCapability && module[at + 1] == kFloat64;
    if (op == kEntryPoint) Append(modes, {kExecutionMode, module[at + 2], kPreserveMode, 32});
    if (op == kEntryPoint && has_f64) Append(modes, {kExecutionMode, module[at + 2], kPreserveMode, 64});
    if (std::ranges::find(kArithmetic, op) != std::end(kArithmetic))
      Append(decorations, {kDecorate, module[at + 2], kNoContraction});
  }
  Append(exact, {kCapability, kPreserve});
  for (size_t at = kHeader, end = 0; at < module.size(); at = end) {
    end = at + (module[at] >> 16);
    const uint32_t op = module[at] & 0xffff;
    if (op == kDecorate || op == kMemberDecorate || (op >= kTypeVoid && op <= kTypeForwardPointer))
      exact.insert(exact.end(), decorations.begin(), decorations.end()), decorations.clear();
    exact.insert(exact.end(), module.data() + at, module.data() + end);
    if (op == kEntryPoint) exact.insert(exact.end(), modes.begin(), modes.end());
  }
  return exact;
}

}  // namespace

Result<std::string> CompileGlsl(const std::string& source) {
  static const bool is_ready = glslang_initialize_process() != 0;
  HONE_CHECK(is_ready);
  glslang_input_t input{};
  input.language = GLSLANG_SOURCE_GLSL;
  input.stage = GLSLANG_STAGE_COMPUTE;
  input.client = GLSLANG_CLIENT_VULKAN;
  input.client_version = GLSLANG_TARGET_VULKAN_1_2;
  input.target_language = GLSLANG_TARGET_SPV;
  input.target_language_version = GLSLANG_TARGET_SPV_1_5;
  input.code = source.c_str();
  input.default_version = 450;
  input.default_profile = GLSLANG_NO_PROFILE;
  input.messages = static_cast<glslang_messages_t>(GLSLANG_MSG_SPV_RULES_BIT | GLSLANG_MSG_VULKAN_RULES_BIT);
  input.resource = glslang_default_resource();
  const std::unique_ptr<glslang_shader_t, decltype(&glslang_shader_delete)> shader(glslang_shader_create(&input),
                                                                                   glslang_shader_delete);
  const auto refused = [](const char* log) {
    return Error{ErrorKind::kBuildFailed, std::string("glslang refuses the code: ") + log, ""};
  };
  if (glslang_shader_preprocess(shader.get(), &input) == 0 || glslang_shader_parse(shader.get(), &input) == 0)
    return refused(glslang_shader_get_info_log(shader.get()));
  const std::unique_ptr<glslang_program_t, decltype(&glslang_program_delete)> program(glslang_program_create(),
                                                                                      glslang_program_delete);
  glslang_program_add_shader(program.get(), shader.get());
  if (glslang_program_link(program.get(), input.messages) == 0)
    return refused(glslang_program_get_info_log(program.get()));
  glslang_spv_options_t options{};
  options.disable_optimizer = true;
  glslang_program_SPIRV_generate_with_options(program.get(), input.stage, &options);
  const size_t words = glslang_program_SPIRV_get_size(program.get());
  if (words == 0) return refused("it made no module");
  const uint32_t* made = glslang_program_SPIRV_get_ptr(program.get());
  const Words module = WithExactArithmetic({made, made + words});
  return std::string(reinterpret_cast<const char*>(module.data()), module.size() * sizeof module[0]);
}

}  // namespace hone

#else

namespace hone {

Result<std::string> CompileGlsl(const std::string&) {
  return Error{ErrorKind::kUnsupported, "built without glslang (Debian: glslang-dev, spirv-tools)", ""};
}

}  // namespace hone

#endif
