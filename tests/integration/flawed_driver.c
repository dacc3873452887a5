/* PoCL with a flaw, as a driver for OpenCL that its loader finds: everything is PoCL's but that in each process it
 * compiles the code that comes first, and refuses any other. */
#include <CL/cl_icd.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char kWords[] = "flawed_driver: line 7: internal error, selection of an instruction failed";
static cl_icd_dispatch pocl; /* as it was */
static void* (*extension)(const char*);
static char* first; /* source of what was compiled first */
static int refused;

static char* source_of(cl_program program) {
  size_t size = 0;
  if (pocl.clGetProgramInfo(program, CL_PROGRAM_SOURCE, 0, NULL, &size) != CL_SUCCESS) abort();
  char* text = malloc(size + 1);
  if (pocl.clGetProgramInfo(program, CL_PROGRAM_SOURCE, size, text, NULL) != CL_SUCCESS) abort();
  text[size] = 0;
  return text;
}

static cl_int CL_API_CALL build(cl_program program, cl_uint count, const cl_device_id* devices, const char* options,
                                void(CL_CALLBACK* notify)(cl_program, void*), void* data) {
  char* source = source_of(program);
  if (first == NULL) first = source;
  refused = strcmp(first, source) != 0;
  return refused ? CL_BUILD_PROGRAM_FAILURE : pocl.clBuildProgram(program, count, devices, options, notify, data);
}

static cl_int CL_API_CALL build_info(cl_program program, cl_device_id device, cl_program_build_info what, size_t room,
                                     void* to, size_t* size) {
  if (!refused || what != CL_PROGRAM_BUILD_LOG)
    return pocl.clGetProgramBuildInfo(program, device, what, room, to, size);
  if (size != NULL) *size = sizeof kWords;
  if (to != NULL && room >= sizeof kWords) memcpy(to, kWords, sizeof kWords);
  return CL_SUCCESS;
}

static cl_int CL_API_CALL platforms(cl_uint room, cl_platform_id* found, cl_uint* count) {
  const clIcdGetPlatformIDsKHR_fn of_pocl = (clIcdGetPlatformIDsKHR_fn)extension("clIcdGetPlatformIDsKHR");
  const cl_int code = of_pocl(room, found, count);
  if (code != CL_SUCCESS || found == NULL || pocl.clBuildProgram != NULL) return code;
  /* All of its objects begin with the address of one table. */
  cl_icd_dispatch* table = *(cl_icd_dispatch**)found[0];
  memcpy(&pocl, table, sizeof pocl);
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)table / page * page;
  if (mprotect((void*)begin, (uintptr_t)table + sizeof pocl - begin, PROT_READ | PROT_WRITE) != 0) abort();
  table->clBuildProgram = build;
  table->clGetProgramBuildInfo = build_info;
  return code;
}

__attribute__((visibility("default"))) void* clGetExtensionFunctionAddress(const char* name) {
  if (extension == NULL) {
    void* library = dlopen(POCL, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return NULL;
    extension = (void* (*)(const char*))dlsym(library, "clGetExtensionFunctionAddress");
  }
  return strcmp(name, "clIcdGetPlatformIDsKHR") == 0 ? (void*)platforms : extension(name);
}
