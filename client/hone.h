/* libhone: fast tensor kernels from honed, the local kernel service. C99.
 *
 *   hone_error error = HONE_ERROR_INIT;
 *   hone_connect_options options = HONE_CONNECT_OPTIONS_INIT;
 *   options.flags = HONE_START_DAEMON;
 *   hone_client *client = hone_connect(&options, &error);
 *   hone_kernel *kernel = hone_get(client, "dense(M=1,N=1000,K=512,const=1)+bias", NULL, &error);
 *   hone_bind(kernel, 1, weights, &error);
 *   hone_bind(kernel, 2, bias, &error);
 *   void *buffers[] = {x, NULL, NULL, y};
 *   hone_call(kernel, buffers, NULL);
 *
 * A kernel that is held becomes faster while it is used: when honed has better code, a thread of the library loads it,
 * packs the bound constants for it, and has the next calls go there; calls under way finish where they are, and what
 * they used is released after them. Results stay within the kernel's accuracy, but may differ in the last bits. Who
 * wants none of that asks for a frozen kernel (hone_get_options), or pins it (`hone pin`).
 *
 * A daemon that is dead, slow, stopped or full never breaks an application: hone_get returns within its deadline, with
 * code from the client's own cache on disk if there is some, and with a clear error if not. A held kernel needs no
 * daemon. What one machine computes does not depend on the number of threads.
 *
 * Errors: functions that take a hone_error fill it when they fail (it may be NULL). Structures carry their size first,
 * so that programs built against an older header keep working: initialise them with the macros. */
#ifndef HONE_CLIENT_HONE_H_
#define HONE_CLIENT_HONE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HONE_API_VERSION 1

#if defined(__GNUC__)
#define HONE_PUBLIC __attribute__((visibility("default")))
#else
#define HONE_PUBLIC
#endif

typedef struct hone_client hone_client; /* a connection's owner; thread-safe */
typedef struct hone_kernel hone_kernel; /* callable code; calls may come from any number of threads at once */

/* Why something failed. 0 is success. */
enum hone_error_kind {
  HONE_OK = 0,
  HONE_INVALID = 1,     /* the input is wrong; the message says where and what was wanted */
  HONE_NOT_FOUND = 2,   /* no code for it without compiling, and that was not wanted */
  HONE_UNSUPPORTED = 3, /* legal, but not on this machine (yet) */
  HONE_LIMIT = 4,       /* legal, but larger than hone's limits */
  HONE_IO = 5,
  HONE_CORRUPT = 6,     /* received or stored bytes that are not what they should be; never loaded */
  HONE_BUSY = 7,        /* the daemon's queue is full; ask again after retry_after_ms */
  HONE_TIMEOUT = 8,     /* the deadline or the budget passed */
  HONE_UNAVAILABLE = 9, /* no daemon there */
  HONE_BUILD_FAILED = 10,
  HONE_RUN_FAILED = 11,   /* generated code failed its check, or its parallel_for failed */
  HONE_WRONG_RESULT = 12, /* the code that was built computes something else; it was not served */
  HONE_INTERNAL = 13      /* a bug of hone's */
};

typedef struct hone_error {
  uint32_t struct_size;
  int32_t kind; /* enum hone_error_kind */
  uint32_t retry_after_ms;
  char message[512]; /* what was seen, what was wanted, what to try; zero-terminated, cut if longer */
  char where[256];   /* "kernel:1:14", a path, a step; may be empty */
} hone_error;
#define HONE_ERROR_INIT {sizeof(hone_error), 0, 0, {0}, {0}}

/* An application's own threads in place of the library's pool: the same function as generated code calls. Runs body
 * over 0 … n-1 in ranges of at least `grain` (the last may be shorter), each with the number 0 … workers-1 of the
 * worker that it runs on; two ranges of one call never run on one worker at the same time. Returns 0 when all is done;
 * anything else makes hone_call fail. Called from any thread that calls kernels. */
typedef int (*hone_parallel_for)(void* pool, int64_t n, int64_t grain,
                                 void (*body)(int64_t begin, int64_t end, int32_t worker, void* ctx), void* ctx);

typedef struct hone_connect_options {
  uint32_t struct_size;
  uint32_t flags;         /* HONE_* below */
  const char* socket;     /* NULL: $HONE_SOCKET, else this user's honed, else the system's */
  const char* disk_cache; /* directory of the client's own copies; NULL: $XDG_CACHE_HOME/hone/client */
  int32_t threads;        /* of the library's pool, the caller included; 0: as many as this process may run on */
  int32_t spin_us;        /* how long idle threads look for work before they sleep; 0: the default; -1: not at all */
  void* pool;             /* with parallel_for: the application's own threads, `threads` of them */
  hone_parallel_for parallel_for;
} hone_connect_options;
#define HONE_CONNECT_OPTIONS_INIT {sizeof(hone_connect_options), 0, NULL, NULL, 0, 0, NULL, NULL}

#define HONE_START_DAEMON 1u  /* start honed if nothing listens; libraries do not unless asked */
#define HONE_NO_DISK_CACHE 2u /* neither read nor write copies on disk */

typedef struct hone_get_options {
  uint32_t struct_size;
  int32_t threads;     /* that the code is made for and called with; 0: what the kernel says, else the pool's */
  int64_t budget_us;   /* how long to wait for better code; 0: as long as one build takes; from 0.3 s on schedules of
                          other kernels are measured, from 3 s on there is a search */
  int64_t deadline_us; /* hone_get returns within it; 0: 10 seconds */
  int32_t frozen;      /* 1: this code, bit for bit, for as long as it is held, even when better code appears */
  int32_t no_compile;  /* 1: what is in the cache, or HONE_NOT_FOUND */
} hone_get_options;
#define HONE_GET_OPTIONS_INIT {sizeof(hone_get_options), 0, 0, 0, 0, 0}

/* Element types, as in hone_operand_info.dtype. */
enum hone_dtype {
  HONE_BOOL = 1,
  HONE_I8 = 2,
  HONE_I32 = 3,
  HONE_I64 = 4,
  HONE_F16 = 5,
  HONE_BF16 = 6,
  HONE_F32 = 7,
  HONE_F64 = 8,
  HONE_U8 = 9,
  /* Of networks' inputs and outputs; no kernel computes with them yet. */
  HONE_U16 = 10,
  HONE_I16 = 11,
  HONE_U32 = 12,
  HONE_U64 = 13
};

#define HONE_MAX_RANK 16

typedef struct hone_operand_info {
  const char* name; /* as the kernel's text calls it; of library operations: "a" "b" "x" "w" "gamma" "beta" "bias" … */
  int32_t dtype;    /* enum hone_dtype */
  int32_t rank;
  int64_t shape[HONE_MAX_RANK]; /* elements, row-major, dense; of a dynamic dimension the largest */
  int64_t bytes;                /* of the whole operand; of a dynamic one the most */
  int32_t is_output;
  int32_t is_const;   /* never changes after hone_bind */
  int32_t needs_bind; /* must be bound before the first call: the code wants it packed */
} hone_operand_info;

typedef struct hone_kernel_info {
  uint32_t struct_size;
  int32_t operand_count;
  const hone_operand_info* operands; /* in the order of hone_call's buffers; lives as long as the kernel */
  int32_t size_count;                /* dynamic sizes that hone_call wants */
  int32_t threads;
  const char* fingerprint; /* 32 hex digits */
  const char* class_name;  /* "dense+bias" */
  const char* target;
  const char* origin; /* tuned, transferred, default, imported */
  const char* source; /* where the code came from: "daemon" or "disk" */
  int32_t hit;        /* 1: it was there before it was asked for */
  int32_t pinned;
  double expected_us; /* of one call; 0: not measured yet */
  double served_us;   /* from asking to a callable kernel, on this side's clock */
  double flops;       /* of one call */
  int64_t updates;    /* how often better code has replaced what was called, since hone_get */
} hone_kernel_info;
#define HONE_KERNEL_INFO_INIT \
  {sizeof(hone_kernel_info), 0, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, 0, 0, 0.0, 0.0, 0.0, 0}

/* Prepares a client. Succeeds without a daemon, too: it is looked for again whenever it is needed. `options` may be
 * NULL. NULL on failure: HONE_INVALID (a socket in a directory that others may write, a struct_size of 0, flags
 * that this library does not know). */
HONE_PUBLIC hone_client* hone_connect(const hone_connect_options* options, hone_error* error);

/* Code for a kernel: a library operation or the kernel language. Returns within the deadline whatever the daemon does.
 * `options` may be NULL. NULL on failure. Takes 128 KiB of the calling thread's stack for a library operation, and up
 * to 2 MiB for the deepest expressions that the kernel language allows. */
HONE_PUBLIC hone_kernel* hone_get(hone_client* client, const char* kernel, const hone_get_options* options,
                                  hone_error* error);

/* Gives a constant operand its data, which is packed now and must stay alive and unchanged until hone_release: code
 * that replaces this one may want it in another layout, and a thread of the library reads it then. Not while calls are
 * running. 0, or the error's kind. */
HONE_PUBLIC int hone_bind(hone_kernel* kernel, int32_t operand, const void* data, hone_error* error);

/* Computes. buffers: one per operand, in order; NULL for what was bound. sizes: the dynamic ones, in the manifest's
 * order; NULL if there are none. Outputs must not overlap inputs, what was bound, or each other. 0, or: HONE_INVALID (a
 * buffer missing, misaligned or overlapping, a constant not bound, a size out of range; which one: see below),
 * HONE_LIMIT (no memory for the workspace), HONE_RUN_FAILED. Nothing is written when the arguments are refused. */
HONE_PUBLIC int hone_call(hone_kernel* kernel, void* const* buffers, const int64_t* sizes);

/* The shape that an operand has in a call with these sizes: as many dimensions as its `rank`, written to `shape`. So
 * much memory is what hone_call reads or writes; of operands without dynamic dimensions it is hone_operand_info.shape.
 * 0, or HONE_INVALID: no such operand, or a size is out of its range (HONE_CALL_OPERAND: the operand). */
HONE_PUBLIC int hone_shape(const hone_kernel* kernel, int32_t operand, const int64_t* sizes, int64_t* shape);

/* A failed call's number holds which operand (or size) it was about: HONE_CALL_KIND(status) is the enum
 * hone_error_kind, HONE_CALL_OPERAND(status) the operand's index or -1. */
#define HONE_CALL_KIND(status) ((status) & 0xff)
#define HONE_CALL_OPERAND(status) (((status) >> 8) - 1)

/* Facts about a kernel, of the code that is called now; fills as much of `info` as its struct_size says. The texts live
 * as long as the kernel. 0, HONE_INVALID, or HONE_LIMIT (no memory). */
HONE_PUBLIC int hone_info(const hone_kernel* kernel, hone_kernel_info* info);

/* Gives a kernel back. Not while calls are running. NULL is fine. A kernel may outlive its client. */
HONE_PUBLIC void hone_release(hone_kernel* kernel);
HONE_PUBLIC void hone_close(hone_client* client);

#ifdef __cplusplus
}
#endif

#endif
