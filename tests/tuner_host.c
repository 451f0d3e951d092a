/* Stands in for NCCL: loads a tuner plug-in, begins a communicator, asks it about calls that a file lists, and writes its answers.
 *
 * tuner_host PLUGIN VERSION NODES RANKS [CALLS ANSWERS | bench=N]: of each call a `struct call` is read and a `struct answer` written.
 * With bench=N the calls are asked N times over and the nanoseconds of one are printed. Lines of the log go to standard error. */
#define _GNU_SOURCE
#include "tuner_abi.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { UNTOUCHED = -7, PAIRS = TUNER_ALGORITHMS * TUNER_PROTOCOLS };

struct call {
  uint64_t bytes;
  int32_t op, pipelined, registered, available; /* a bit for each pair, protocols of an algorithm side by side */
};
struct answer {
  int32_t algorithm, protocol, channels, strange; /* entries of the table that changed and are not 0 */
};

static int version;
static struct tuner_plugin *plugin;
static void *context;

static void logger(int level, unsigned long flags, const char *file, int line, const char *format, ...) {
  (void)flags, (void)file, (void)line;
  va_list rest;
  va_start(rest, format);
  fprintf(stderr, "%d ", level);
  vfprintf(stderr, format, rest);
  fprintf(stderr, "\n");
  va_end(rest);
}

static int begin(size_t nodes, size_t ranks) {
  if (version < 5) return plugin->init.v2(ranks, nodes, logger, &context);
  return plugin->init.v5(&context, 42, ranks, nodes, logger, NULL, NULL);
}

static void ask_v2(const struct call *call, struct answer *out) {
  int collnet = call->available >> (TUNER_COLLNET_DIRECT * TUNER_PROTOCOLS) & 1;
  int nvls = call->available >> (TUNER_NVLS * TUNER_PROTOCOLS) & 1;
  plugin->choose.v2(context, call->op, call->bytes, collnet, nvls, call->pipelined, &out->algorithm, &out->protocol, &out->channels);
}

static void ask_table(const struct call *call, struct answer *out) {
  float costs[PAIRS], before[PAIRS];
  for (int pair = 0; pair < PAIRS; pair++)
    costs[pair] = call->available >> pair & 1 ? 10.0f + (float)pair : TUNER_NOT_AVAILABLE;
  memcpy(before, costs, sizeof costs);
  if (version == 3)
    plugin->choose.v3(context, call->op, call->bytes, call->pipelined, (float **)costs, TUNER_ALGORITHMS, TUNER_PROTOCOLS, &out->channels);
  else
    plugin->choose.v4(context, call->op, call->bytes, call->pipelined, (float **)costs, TUNER_ALGORITHMS, TUNER_PROTOCOLS,
                      call->registered, &out->channels);
  for (int pair = 0; pair < PAIRS; pair++) {
    if (costs[pair] == before[pair]) continue;
    out->strange += costs[pair] != 0.0f || before[pair] == TUNER_NOT_AVAILABLE || out->algorithm != UNTOUCHED;
    out->algorithm = pair / TUNER_PROTOCOLS, out->protocol = pair % TUNER_PROTOCOLS;
  }
}

static struct answer ask(const struct call *call) {
  struct answer out = {UNTOUCHED, UNTOUCHED, UNTOUCHED, 0};
  if (version == 2)
    ask_v2(call, &out);
  else
    ask_table(call, &out);
  return out;
}

/* Only the plug-in is timed: the table of costs is made once. */
static double nanoseconds(const struct call *calls, size_t count, long rounds) {
  float costs[PAIRS];
  for (int pair = 0; pair < PAIRS; pair++) costs[pair] = 10.0f;
  struct timespec began, ended;
  int channels = 0;
  clock_gettime(CLOCK_MONOTONIC, &began);
  for (long round = 0; round < rounds; round++)
    for (size_t i = 0; i < count; i++)
      plugin->choose.v4(context, calls[i].op, calls[i].bytes, calls[i].pipelined, (float **)costs, TUNER_ALGORITHMS, TUNER_PROTOCOLS,
                        calls[i].registered, &channels);
  clock_gettime(CLOCK_MONOTONIC, &ended);
  return ((double)(ended.tv_sec - began.tv_sec) * 1e9 + (double)(ended.tv_nsec - began.tv_nsec)) / ((double)rounds * (double)count);
}

static struct call *read_calls(const char *path, size_t *count) {
  FILE *file = fopen(path, "rb");
  if (!file) exit(2);
  fseek(file, 0, SEEK_END);
  *count = (size_t)ftell(file) / sizeof(struct call);
  rewind(file);
  struct call *calls = malloc(*count * sizeof *calls + 1);
  if (!calls || fread(calls, sizeof *calls, *count, file) != *count) exit(2);
  fclose(file);
  return calls;
}

int main(int count, char **words) {
  if (count < 5) return 2;
  version = atoi(words[2]);
  void *library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
  char symbol[32];
  snprintf(symbol, sizeof symbol, "ncclTunerPlugin_v%d", version);
  plugin = library ? dlsym(library, symbol) : NULL;
  if (!plugin) return fprintf(stderr, "%s\n", dlerror()), 3;
  if (version >= 6 && plugin->chunk) return 4;
  size_t nodes = (size_t)atol(words[3]), ranks = (size_t)atol(words[4]);
  if (begin(nodes, ranks)) return 5;
  void *first = context;
  if (begin(nodes, ranks)) return 5; /* a second communicator: what is wrong with the table is not said again */
  printf("%s %s\n", plugin->name, context ? "follows" : "changes nothing");
  if (count > 6) {
    size_t asked;
    struct call *calls = read_calls(words[5], &asked);
    if (!strncmp(words[6], "bench=", 6)) {
      printf("%.1f\n", nanoseconds(calls, asked, atol(words[6] + 6)));
    } else {
      FILE *out = fopen(words[6], "wb");
      for (size_t i = 0; i < asked; i++) {
        struct answer answer = ask(&calls[i]);
        fwrite(&answer, sizeof answer, 1, out);
      }
      fclose(out);
    }
    free(calls);
  }
  if (plugin->end(first) || plugin->end(context)) return 6;
  dlclose(library);
  return 0;
}
