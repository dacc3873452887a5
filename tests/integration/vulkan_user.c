/* An application of libhone_vulkan with a device, a queue, command buffers and buffers of its own. */
#include <hone_vulkan.h>

#include "device_user.h"

typedef struct Buffer {
  VkBuffer buffer;
  VkDeviceMemory memory;
  void* mapped;
  hone_vulkan_buffer seen; /* by kernels */
} Buffer;

static VkInstance instance;
static VkPhysicalDevice physical;
static VkDevice device;
static VkQueue queue;
static uint32_t family;
static pthread_mutex_t queue_mutex = PTHREAD_MUTEX_INITIALIZER;
static VkCommandPool pool;
static VkCommandBuffer commands[kOutputs];
static VkSemaphore timeline;
static uint64_t last_value;
static Buffer inputs[3], outputs[kOutputs];
static hone_vulkan* vulkan;
static hone_vulkan_kernel* kernel;

static void Check(VkResult code, const char* what) { Need(code == VK_SUCCESS, what); }
static void Lock(void* mutex) { pthread_mutex_lock(mutex); }
static void Unlock(void* mutex) { pthread_mutex_unlock(mutex); }

static Buffer BufferOf(VkDeviceSize bytes, const void* data) {
  Buffer made;
  VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                             .size = bytes,
                             .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT};
  Check(vkCreateBuffer(device, &info, NULL, &made.buffer), "no buffer");
  VkMemoryRequirements needs;
  vkGetBufferMemoryRequirements(device, made.buffer, &needs);
  VkPhysicalDeviceMemoryProperties kinds;
  vkGetPhysicalDeviceMemoryProperties(physical, &kinds);
  const VkMemoryPropertyFlags wanted = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  uint32_t kind = 0;
  while (kind < kinds.memoryTypeCount &&
         (!(needs.memoryTypeBits >> kind & 1) || (kinds.memoryTypes[kind].propertyFlags & wanted) != wanted))
    ++kind;
  VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                     .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
  VkMemoryAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                   .pNext = &flags,
                                   .allocationSize = needs.size,
                                   .memoryTypeIndex = kind};
  Check(vkAllocateMemory(device, &allocate, NULL, &made.memory), "no memory");
  Check(vkBindBufferMemory(device, made.buffer, made.memory, 0), "no place");
  Check(vkMapMemory(device, made.memory, 0, VK_WHOLE_SIZE, 0, &made.mapped), "no mapping");
  if (data != NULL) memcpy(made.mapped, data, bytes);
  VkBufferDeviceAddressInfo where = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, .buffer = made.buffer};
  made.seen.address = vkGetBufferDeviceAddress(device, &where);
  made.seen.bytes = bytes;
  return made;
}

static void Free(Buffer* buffer) {
  vkDestroyBuffer(device, buffer->buffer, NULL);
  vkFreeMemory(device, buffer->memory, NULL);
}

static void OpenDevice(void) {
  VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_2};
  VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &application};
  Check(vkCreateInstance(&info, NULL, &instance), "no Vulkan");
  uint32_t count = 1;
  Need(vkEnumeratePhysicalDevices(instance, &count, &physical) >= 0 && count == 1, "no physical device");
  VkQueueFamilyProperties families[16];
  count = 16;
  vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, families);
  while (family < count && !(families[family].queueFlags & VK_QUEUE_COMPUTE_BIT)) ++family;
  VkPhysicalDeviceVulkan12Features features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                               .bufferDeviceAddress = VK_TRUE,
                                               .scalarBlockLayout = VK_TRUE,
                                               .timelineSemaphore = VK_TRUE};
  const float priority = 1;
  VkDeviceQueueCreateInfo queues = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                    .queueFamilyIndex = family,
                                    .queueCount = 1,
                                    .pQueuePriorities = &priority};
  VkDeviceCreateInfo wanted = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .pNext = &features,
                               .queueCreateInfoCount = 1,
                               .pQueueCreateInfos = &queues};
  Check(vkCreateDevice(physical, &wanted, NULL, &device), "no device");
  vkGetDeviceQueue(device, family, 0, &queue);
  VkCommandPoolCreateInfo pools = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                   .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                   .queueFamilyIndex = family};
  Check(vkCreateCommandPool(device, &pools, NULL, &pool), "no command pool");
  VkCommandBufferAllocateInfo buffers = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                         .commandPool = pool,
                                         .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                         .commandBufferCount = kOutputs};
  Check(vkAllocateCommandBuffers(device, &buffers, commands), "no command buffers");
  VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                    .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
  VkSemaphoreCreateInfo semaphore = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
  Check(vkCreateSemaphore(device, &semaphore, NULL, &timeline), "no semaphore");
}

static hone_vulkan_device Mine(void) {
  hone_vulkan_device mine = HONE_VULKAN_DEVICE_INIT;
  mine.instance = instance;
  mine.physical_device = physical;
  mine.device = device;
  mine.queue_family = family;
  mine.queue = queue;
  mine.lock = Lock;
  mine.unlock = Unlock;
  mine.user = &queue_mutex;
  return mine;
}

static void Open(void) {
  OpenDevice();
  inputs[0] = BufferOf(sizeof x, x);
  inputs[1] = BufferOf(sizeof w, w);
  inputs[2] = BufferOf(sizeof bias, bias);
  for (int i = 0; i < kOutputs; ++i) outputs[i] = BufferOf(sizeof wanted, NULL);
  const hone_vulkan_device mine = Mine();
  vulkan = hone_vulkan_open(&mine, NULL, &error);
  Need(vulkan != NULL, error.message);
  hone_get_options options = HONE_GET_OPTIONS_INIT;
  options.deadline_us = 60000000;
  kernel = hone_vulkan_get(vulkan, kernel_text, &options, &error);
  Need(kernel != NULL, error.message);
  for (int i = 1; i < 3; ++i) Need(hone_vulkan_bind(kernel, i, inputs[i].seen, &error) == 0, error.message);
}

static int RecordWith(VkCommandBuffer into, hone_vulkan_buffer from, hone_vulkan_buffer to, VkSemaphore end) {
  const hone_vulkan_buffer buffers[] = {from, {0, 0}, {0, 0}, to};
  return hone_vulkan_record(kernel, into, buffers, end, last_value + 1, &error);
}

/* Two calls of the same, one after the other. */
static int Enqueue(int ignored, int output) {
  (void)ignored;
  VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  Check(vkBeginCommandBuffer(commands[output], &begin), "nothing is recorded");
  for (int i = 0; i < 2; ++i) {
    const int status = RecordWith(commands[output], inputs[0].seen, outputs[output].seen, timeline);
    if (status != 0) return status;
  }
  Check(vkEndCommandBuffer(commands[output]), "nothing was recorded");
  const uint64_t value = ++last_value;
  VkTimelineSemaphoreSubmitInfo values = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                          .signalSemaphoreValueCount = 1,
                                          .pSignalSemaphoreValues = &value};
  VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .pNext = &values,
                         .commandBufferCount = 1,
                         .pCommandBuffers = &commands[output],
                         .signalSemaphoreCount = 1,
                         .pSignalSemaphores = &timeline};
  memset(outputs[output].mapped, 0xff, sizeof wanted);
  pthread_mutex_lock(&queue_mutex);
  const VkResult submitted = vkQueueSubmit(queue, 1, &submit, VK_NULL_HANDLE);
  pthread_mutex_unlock(&queue_mutex);
  Check(submitted, "nothing was submitted");
  return 0;
}

static void Wait(void) {
  VkSemaphoreWaitInfo wait = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                              .semaphoreCount = 1,
                              .pSemaphores = &timeline,
                              .pValues = &last_value};
  Check(vkWaitSemaphores(device, &wait, UINT64_MAX), "the device is lost");
}

static void Read(int output, float* y) { memcpy(y, outputs[output].mapped, sizeof wanted); }
static int CallOnHost(void* const* buffers) { return hone_vulkan_call(kernel, buffers, &error); }
static void GetInfo(hone_kernel_info* info) { Need(hone_vulkan_info(kernel, info) == 0, "no info"); }

static void UseWrongly(void) {
  const hone_vulkan_buffer from = inputs[0].seen, to = outputs[0].seen, none = {0, 0};
  VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  Check(vkBeginCommandBuffer(commands[0], &begin), "nothing is recorded");
  Say("no commands", RecordWith(NULL, from, to, timeline));
  Say("no timeline", RecordWith(commands[0], from, to, VK_NULL_HANDLE));
  const hone_vulkan_buffer small = {from.address, from.bytes - 4}, odd = {from.address + 2, from.bytes};
  Say("small buffer", RecordWith(commands[0], small, to, timeline));
  Say("misaligned", RecordWith(commands[0], odd, to, timeline));
  Say("missing buffer", RecordWith(commands[0], none, to, timeline));
  const hone_vulkan_buffer over = {to.address + 64, from.bytes};
  Say("overlap", RecordWith(commands[0], over, to, timeline));
  Say("no constant", hone_vulkan_bind(kernel, 0, from, &error));
  void* nothing[] = {NULL, NULL, NULL, NULL};
  Say("no memory", hone_vulkan_call(kernel, nothing, &error));
  hone_vulkan_kernel* unbound = hone_vulkan_get(vulkan, kernel_text, NULL, &error);
  const hone_vulkan_buffer buffers[] = {from, none, none, to};
  Say("not bound", hone_vulkan_record(unbound, commands[0], buffers, timeline, last_value + 1, &error));
  hone_vulkan_release(unbound);
  Say("released", hone_vulkan_record(unbound, commands[0], buffers, timeline, last_value + 1, &error));
  hone_vulkan_device wrong = Mine();
  wrong.queue_family = 99;
  Need(hone_vulkan_open(&wrong, NULL, &error) == NULL, "a family that is not there was opened");
  Say("no family", error.kind);
  wrong = Mine();
  wrong.queue = NULL;
  Need(hone_vulkan_open(&wrong, NULL, &error) == NULL, "a device without a queue was opened");
  Say("no queue", error.kind);
  const hone_vulkan_device mine = Mine();
  hone_vulkan* closed = hone_vulkan_open(&mine, NULL, &error);
  hone_vulkan_close(closed);
  Need(hone_vulkan_get(closed, kernel_text, NULL, &error) == NULL, "a closed one gives kernels");
  Say("closed", error.kind);
  Check(vkEndCommandBuffer(commands[0]), "nothing was recorded");
}

static void Close(void) {
  hone_vulkan_close(vulkan);
  Need(MakeCalls(kOutputs) == 0, "a kernel does not outlive its device");
  hone_vulkan_release(kernel);
  for (int i = 0; i < kOutputs; ++i) Free(&outputs[i]);
  for (int i = 0; i < 3; ++i) Free(&inputs[i]);
  vkDestroySemaphore(device, timeline, NULL);
  vkDestroyCommandPool(device, pool, NULL);
  vkDestroyDevice(device, NULL);
  vkDestroyInstance(instance, NULL);
}
