/* libhone_network: whole networks from ONNX files, run through kernels that honed serves. C99; errors, options and
 * element types as in hone.h. Small ones of a file (whole numbers of 2 and 4 bits, floats of 8 and of 4) are taken and
 * given as bytes and as f32.
 *
 *   hone_network *network = hone_network_open("model.onnx", NULL, NULL, &error);
 *   const void *inputs[] = {image};
 *   void *outputs[] = {classes};
 *   hone_network_run(network, inputs, outputs, &error);
 *
 * The file may be changed once the network is open. Only better code that wants constants in another layout reads it
 * again, and is not taken if the file is not as it was.
 *
 * Constants are packed once, and memory is planned once; kernels become faster while the network is held, as held
 * kernels do (hone.h). */
#ifndef HONE_MODEL_HONE_NETWORK_H_
#define HONE_MODEL_HONE_NETWORK_H_

#ifdef __has_include
#if __has_include("client/hone.h")
#include "client/hone.h"
#else
#include <hone/hone.h>
#endif
#else
#include <hone/hone.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hone_network hone_network; /* thread-safe: one run at a time, others wait */

/* What one run of a network with open shapes gave; does not depend on the network. */
typedef struct hone_network_results hone_network_results;

/* An input or output. When a network is opened: the shape of an input whose dimensions the file leaves open, or its
 * elements, which make it a constant. Of a network, a dimension is -1 where each run decides it, and so is the rank
 * where nothing is known of a shape. */
typedef struct hone_network_value {
  const char* name;
  int32_t dtype; /* enum hone_dtype; not read where `data` is NULL */
  int32_t rank;
  int64_t shape[HONE_MAX_RANK];
  int64_t bytes;    /* of all elements, dense and row-major; -1: the shape is open; not read */
  const void* data; /* elements of a constant, copied; NULL: the shape alone */
} hone_network_value;

/* How far a kernel's result may be off, relative to the same sum over absolute values. Each layer is held to it; what a
 * network makes of such differences is up to the network. */
enum hone_accuracy {
  HONE_STRICT = 1,  /* as sums of f32 in any order */
  HONE_RELAXED = 2, /* 1e-4: Winograd's convolutions, and products of bf16 in three pieces where tiles multiply them */
  HONE_FAST = 3     /* 1e-2: factors rounded to bf16 where the processor multiplies these faster */
};

typedef struct hone_network_options {
  uint32_t struct_size;
  int32_t value_count;
  const hone_network_value* values;
  const hone_get_options* get; /* for each of its kernels; may be NULL */
  int32_t accuracy;            /* enum hone_accuracy, of its convolutions and products of f32; 0: strict */
} hone_network_options;
#define HONE_NETWORK_OPTIONS_INIT {sizeof(hone_network_options), 0, NULL, NULL, 0}

/* Reads the file and has every kernel of it served; seconds, where the daemon has to compile. `connect` as for
 * hone_connect, `options` may be NULL. NULL on failure: errors of hone_get, and those of the file (HONE_CORRUPT,
 * HONE_INVALID, HONE_LIMIT; HONE_UNSUPPORTED names the first node that could not be taken). */
HONE_PUBLIC hone_network* hone_network_open(const char* path, const hone_connect_options* connect,
                                            const hone_network_options* options, hone_error* error);

/* How many inputs (is_output 0) or outputs (1) there are, and what they are, in the file's order; `name` lives as long
 * as the network. hone_network_describe: 0, or HONE_INVALID: there is no such one. */
HONE_PUBLIC int32_t hone_network_count(const hone_network* network, int32_t is_output);
HONE_PUBLIC int hone_network_describe(const hone_network* network, int32_t is_output, int32_t index,
                                      hone_network_value* value);

/* Computes: elements of every input, room for every output. Outputs must not overlap each other; they may overlap
 * inputs where no output is an input handed on. 0, or: HONE_INVALID (a pointer missing, an index outside of what it
 * indexes, shapes that are open), HONE_LIMIT, HONE_RUN_FAILED. */
HONE_PUBLIC int hone_network_run(hone_network* network, const void* const* inputs, void* const* outputs,
                                 hone_error* error);

/* Computes where shapes are open: inputs in the file's order (name is not read), each with its type, shape and
 * elements. Kernels for shapes that are new are made first, and kept. NULL on failure: what hone_network_run fails
 * with, and HONE_INVALID where shapes contradict the file or each other. */
HONE_PUBLIC hone_network_results* hone_network_compute(hone_network* network, const hone_network_value* inputs,
                                                       hone_error* error);
/* Result number `index`, whose elements live as long as the results. 0, or HONE_INVALID: there is no such one. */
HONE_PUBLIC int hone_network_result(const hone_network_results* results, int32_t index, hone_network_value* value);
HONE_PUBLIC void hone_network_results_free(hone_network_results* results); /* NULL is fine */

/* Where the time of runs goes: all calls of one kernel, or of one operator that runs on the host for one reason. */
typedef struct hone_network_share {
  const char* label;    /* for people: the library operation, what a kernel does, or the operator */
  const char* kernel;   /* as it was asked for; "": none */
  const char* why_host; /* ""; or why it is no kernel */
  int64_t calls;
  double time_us; /* of all its calls */
} hone_network_share;

/* Has runs from now on timed call by call (is_on 1), which costs each call some 50 ns, or no more (0); what was counted
 * before is forgotten. hone_network_shares: how many shares there are, the largest first; the first `capacity` of them
 * are written to `shares`, which may be NULL if that is 0. Texts live until the next call of it, by whichever thread:
 * of several that call it for one network, each reads its texts before another calls it. Runs of all threads count. */
HONE_PUBLIC void hone_network_time_calls(hone_network* network, int is_on);
HONE_PUBLIC int32_t hone_network_shares(hone_network* network, hone_network_share* shares, int32_t capacity);

/* Not while it runs. NULL is fine. */
HONE_PUBLIC void hone_network_close(hone_network* network);

#ifdef __cplusplus
}
#endif

#endif
