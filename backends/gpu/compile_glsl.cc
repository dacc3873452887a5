#include "backends/gpu/compile_glsl.h"

#if HONE_HAS_GLSLANG
#include <glslang/Include/glslang_c_interface.h>
#include <glslang/Public/resource_limits_c.h>

#include <memory>

#include "base/check.h"

namespace hone {

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
  return std::string(reinterpret_cast<const char*>(glslang_program_SPIRV_get_ptr(program.get())),
                     words * sizeof(unsigned int));
}

}  // namespace hone

#else

namespace hone {

Result<std::string> CompileGlsl(const std::string&) {
  return Error{ErrorKind::kUnsupported, "built without glslang (Debian: glslang-dev, spirv-tools)", ""};
}

}  // namespace hone

#endif
