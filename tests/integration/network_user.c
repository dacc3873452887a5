/* An application of libhone_network, as C99 against an installed tree: runs the network that it is given on ones and
 * prints its inputs and outputs, a line each; the error, if there is one. */
#include <hone_network.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void Print(const char* role, const hone_network_value* value) {
  printf("%s %s %" PRId32, role, value->name, value->dtype);
  for (int32_t d = 0; d < value->rank; ++d) printf(" %" PRId64, value->shape[d]);
  printf("\n");
}

int main(int argc, char** argv) {
  hone_error error = HONE_ERROR_INIT;
  hone_network_options options = HONE_NETWORK_OPTIONS_INIT;
  hone_get_options get = HONE_GET_OPTIONS_INIT;
  get.threads = 1;
  options.get = &get;
  hone_network* network = argc == 2 ? hone_network_open(argv[1], NULL, &options, &error) : NULL;
  if (network == NULL) {
    printf("error %" PRId32 " %s: %s\n", error.kind, error.where, error.message);
    return 1;
  }
  enum { kMost = 8 };
  const void* inputs[kMost] = {NULL};
  void* outputs[kMost] = {NULL};
  hone_network_value value;
  for (int32_t i = 0; i < hone_network_count(network, 0) && i < kMost; ++i) {
    hone_network_describe(network, 0, i, &value);
    Print("input", &value);
    float* ones = malloc((size_t)value.bytes);
    for (int64_t e = 0; e < value.bytes / 4; ++e) ones[e] = 1;
    inputs[i] = ones;
  }
  for (int32_t i = 0; i < hone_network_count(network, 1) && i < kMost; ++i) {
    hone_network_describe(network, 1, i, &value);
    Print("output", &value);
    outputs[i] = malloc((size_t)value.bytes);
  }
  if (hone_network_describe(network, 0, 99, &value) != HONE_INVALID) return 2;
  if (hone_network_run(network, NULL, outputs, NULL) != HONE_INVALID) return 3;
  if (hone_network_run(network, inputs, outputs, &error) != 0) {
    printf("error %" PRId32 " %s\n", error.kind, error.message);
    return 4;
  }
  printf("first %g\n", ((float*)outputs[0])[0]);
  if (hone_network_shares(network, NULL, 0) != 0) return 5;
  hone_network_time_calls(network, 1);
  if (hone_network_run(network, inputs, outputs, &error) != 0) return 6;
  hone_network_share shares[kMost];
  const int32_t count = hone_network_shares(network, shares, kMost);
  if (count < 1 || shares[0].calls < 1 || shares[0].time_us <= 0 || shares[0].label[0] == 0) return 7;
  if ((shares[0].kernel[0] == 0) == (shares[0].why_host[0] == 0)) return 8;
  for (int i = 0; i < kMost; ++i) free((void*)inputs[i]), free(outputs[i]);
  hone_network_close(network);
  hone_network_close(NULL);
  return 0;
}
