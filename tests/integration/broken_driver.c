/* A driver for OpenCL that its loader finds and that is of no use: asked for its platforms it aborts, or hangs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int platforms(unsigned room, void** found, unsigned* count) {
  (void)room, (void)found, (void)count;
#ifdef HANGS
  for (;;) pause();
  return 0;
#else
  fputs("broken_driver: assertion failed\n", stderr);
  abort();
#endif
}

static int platform_info(void* platform, unsigned what, size_t room, char* text, size_t* size) {
  static const char kExtensions[] = "cl_khr_icd";
  (void)platform, (void)what;
  if (text != NULL && room >= sizeof kExtensions) memcpy(text, kExtensions, sizeof kExtensions);
  if (size != NULL) *size = sizeof kExtensions;
  return 0;
}

__attribute__((visibility("default"))) void* clGetExtensionFunctionAddress(const char* name) {
  if (strcmp(name, "clIcdGetPlatformIDsKHR") == 0) return (void*)platforms;
  return strcmp(name, "clGetPlatformInfo") == 0 ? (void*)platform_info : NULL;
}
