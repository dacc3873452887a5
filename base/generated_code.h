/* The binary interface between generated CPU code and whoever calls it: the client library and the runner. C99.
 * A contract: hone_env grows at the end only, guarded by struct_size and abi_version. */
#ifndef HONE_BASE_GENERATED_CODE_H_
#define HONE_BASE_GENERATED_CODE_H_

#include <stdint.h>

#define HONE_ABI_VERSION 1u
#define HONE_SIZE_OUT_OF_RANGE 33

#ifdef __cplusplus
extern "C" {
#endif

/* What generated code may use. */
typedef struct hone_env {
  uint32_t struct_size, abi_version;
  void* pool;
  int32_t workers;
  /* Runs body over 0 … n-1 in ranges of at least `grain` (the last may be shorter). body gets a range of i and the
   * number of the worker it runs on, 0 … workers-1; two ranges never run on one worker at the same time. Returns 0;
   * anything else makes hone_entry return it. */
  int (*parallel_for)(void* pool, int64_t n, int64_t grain,
                      void (*body)(int64_t begin, int64_t end, int32_t worker, void* ctx), void* ctx);
  void* workspace; /* 64-byte aligned; shared bytes + workers × private bytes, from the manifest; one per call */
} hone_env;

/* buffers: one per operand in the manifest's order (packed copies in place of packed operands). sizes: the dynamic
 * ones. Returns 0; HONE_SIZE_OUT_OF_RANGE, with nothing touched, if a size is not within the kernel's range. Reads and
 * writes nothing outside the operands and the workspace. May be called from several threads, each with its own
 * hone_env. */
typedef int (*hone_entry_fn)(const hone_env* env, void* const* buffers, const int64_t* sizes);

/* Packs a constant operand once: `dst` has the manifest's packed_bytes, 64-byte aligned. Returns 0. */
typedef int (*hone_pack_fn)(const hone_env* env, int32_t operand, const void* src, void* dst);

#ifdef __cplusplus
}
#endif

#endif
