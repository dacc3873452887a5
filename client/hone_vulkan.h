/* libhone_vulkan: kernels that honed serves, on an application's own Vulkan device and in its command buffers. C99;
 * errors, options and what is said of kernels as in hone.h.
 *
 *   hone_vulkan_device mine = HONE_VULKAN_DEVICE_INIT;
 *   mine.instance = instance; … mine.queue = queue;
 *   hone_vulkan *vulkan = hone_vulkan_open(&mine, NULL, &error);
 *   hone_vulkan_kernel *kernel = hone_vulkan_get(vulkan, "dense(M=64,N=1000,K=512,const=1)+bias", NULL, &error);
 *   hone_vulkan_bind(kernel, 1, weights, &error);
 *   hone_vulkan_bind(kernel, 2, bias, &error);
 *   hone_vulkan_buffer buffers[] = {x, {0, 0}, {0, 0}, y};
 *   hone_vulkan_record(kernel, commands, buffers, timeline, ++value, &error);
 *
 * The library makes no device and copies nothing: what is recorded reads and writes the application's buffers, by their
 * addresses, when the application submits it. It links no driver: it calls the Vulkan that the process has
 * (libvulkan.so.1).
 *
 * What the device must have been made with: Vulkan 1.2, and the features bufferDeviceAddress, scalarBlockLayout and
 * timelineSemaphore; and of shaderInt8, storageBuffer8BitAccess, storageBuffer16BitAccess, shaderInt16, shaderInt64 and
 * shaderFloat64 those that the physical device has and the kernel's element types want. A physical device without the
 * property shaderSignedZeroInfNanPreserveFloat32 is refused. Vulkan does not say what a device was made with, nor which
 * device an address or a command buffer is of: the library cannot check it, validation layers can.
 *
 * A kernel that is held becomes faster while it is used, as in hone.h: a thread of the library makes pipelines of
 * better code and packs the bound constants for it, on the queue that it was given; what is recorded from then on is
 * that code. Commands that were recorded before stay as they are. Only the application knows when they have run for the
 * last time, so it says so for each call that it records, by a value of a timeline semaphore: from then on what the
 * call used is released, or used by another one. A held kernel needs no daemon: it goes on when honed dies, and follows
 * the next one.
 *
 * After fork, none of this is for the child process: drivers do not survive it. */
#ifndef HONE_CLIENT_HONE_VULKAN_H_
#define HONE_CLIENT_HONE_VULKAN_H_

#ifdef __has_include
#if __has_include("client/hone.h")
#include "client/hone.h"
#else
#include <hone/hone.h>
#endif
#else
#include <hone/hone.h>
#endif

#include <vulkan/vulkan.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hone_vulkan hone_vulkan; /* a device; thread-safe */
typedef struct hone_vulkan_kernel
    hone_vulkan_kernel; /* code for it; may be recorded by any number of threads at once */

/* All of it must live until hone_vulkan_close and until the last kernel is released. */
typedef struct hone_vulkan_device {
  uint32_t struct_size;
  uint32_t queue_family; /* of `queue`, and of what command buffers are submitted to; it computes */
  VkInstance instance;
  VkPhysicalDevice physical_device;
  VkDevice device;
  VkQueue queue; /* where the library packs constants and makes calls on the host's memory */
  /* Vulkan wants a queue used by one thread at a time: called around each submission of the library's, from any thread,
   * and never while one of its functions waits for the device. NULL: nobody else uses `queue`. */
  void (*lock)(void* user);
  void (*unlock)(void* user);
  void* user;
} hone_vulkan_device;
#define HONE_VULKAN_DEVICE_INIT {sizeof(hone_vulkan_device), 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL}

/* Memory as kernels see it: what vkGetBufferDeviceAddress says, plus any offset, and how many bytes are there. It must
 * be a multiple of 4 bytes, and of the element's size; the buffer has VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT and
 * …_STORAGE_BUFFER_BIT. */
typedef struct hone_vulkan_buffer {
  VkDeviceAddress address; /* 0: none */
  VkDeviceSize bytes;
} hone_vulkan_buffer;

/* Takes up a device. Succeeds without a daemon, as hone_connect does, whose options these are (NULL: the defaults;
 * threads, pool and parallel_for are not used). NULL on failure: HONE_INVALID (something missing, a physical device of
 * another instance, a queue family that does not compute), HONE_UNSUPPORTED (the physical device cannot what kernels
 * need), HONE_NOT_FOUND (no libvulkan.so.1), HONE_RUN_FAILED (of the driver). */
HONE_PUBLIC hone_vulkan* hone_vulkan_open(const hone_vulkan_device* device, const hone_connect_options* options,
                                          hone_error* error);

/* Code for a kernel, for exactly this device, as pipelines on it. Returns within the deadline whatever the daemon does,
 * and after the driver has compiled. NULL on failure: what hone_get fails with; HONE_UNSUPPORTED where honed does not
 * have this device, or the kernel has dynamic sizes (ask for each size); HONE_LIMIT (no memory for scratch);
 * HONE_RUN_FAILED with the driver's error. */
HONE_PUBLIC hone_vulkan_kernel* hone_vulkan_get(hone_vulkan* vulkan, const char* kernel,
                                                const hone_get_options* options, hone_error* error);

/* Gives a constant operand its buffer, which must hold its elements by now: the commands that write them have ended.
 * They are packed on the device, once for each version of the code, so the buffer must stay alive and unchanged until
 * hone_vulkan_release. Waits for that, and for the last values of calls that were recorded before, which must have been
 * submitted; not while other calls are recorded. 0, or the error's kind: HONE_INVALID (no constant; the buffers that
 * hone_vulkan_record refuses). */
HONE_PUBLIC int hone_vulkan_bind(hone_vulkan_kernel* kernel, int32_t operand, hone_vulkan_buffer data,
                                 hone_error* error);

/* Records one call into a command buffer that is being recorded, outside of render passes. `buffers`: one per operand,
 * in order, of address 0 for what was bound. Outputs must not overlap inputs or each other. The call sees what compute
 * and transfer commands recorded before it wrote, and such commands after it see its outputs; the bound pipeline and
 * push constants are other ones afterwards.
 *
 * `timeline` says `value`, or more, once these commands have run for the last time, and not before: the value that the
 * last vkQueueSubmit of the command buffer signals, or, for commands that are submitted again and again, one that
 * vkSignalSemaphore gives it when the last submission has ended. It must live until then and until the kernel is
 * released. Until then the call has scratch memory of its own, if the code wants any.
 *
 * 0, or: HONE_INVALID (a kernel that was released, no command buffer or semaphore, a buffer that is missing, too small
 * or misaligned, a constant not bound; the message says which), HONE_LIMIT (no memory for scratch), and nothing was
 * recorded. */
HONE_PUBLIC int hone_vulkan_record(hone_vulkan_kernel* kernel, VkCommandBuffer commands,
                                   const hone_vulkan_buffer* buffers, VkSemaphore timeline, uint64_t value,
                                   hone_error* error);

/* The same on the host's memory, for convenience: copies inputs to the device, calls on the queue that the library was
 * given, waits, and copies outputs back. What was bound stays where it is. One at a time; others wait. */
HONE_PUBLIC int hone_vulkan_call(hone_vulkan_kernel* kernel, void* const* buffers, hone_error* error);

/* hone_info. size_count is 0. */
HONE_PUBLIC int hone_vulkan_info(const hone_vulkan_kernel* kernel, hone_kernel_info* info);

/* Gives a kernel back; waits for the values of the calls that were recorded, which must have been submitted or
 * signalled. NULL is fine. A kernel may outlive its hone_vulkan, and stays up to date. */
HONE_PUBLIC void hone_vulkan_release(hone_vulkan_kernel* kernel);
HONE_PUBLIC void hone_vulkan_close(hone_vulkan* vulkan);

#ifdef __cplusplus
}
#endif

#endif
