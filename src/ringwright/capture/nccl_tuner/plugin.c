/* The NCCL tuner plug-in of Ringwright: every call takes what the first row of a table says that holds for it.
 *
 * NCCL_TUNER_CONFIG_FILE names the table, in the form of NCCL's example plug-in. A table with one bad line is refused as a whole:
 * its line is logged, once a process, and then nothing is changed; neither is anything where no row holds. The rows of a communicator
 * are painted onto a line of sizes when it begins, so that a call is a binary search; one that the first row there does not serve,
 * because NCCL has ruled the pair out or the row asks for another group of calls, is offered the next ones, LAYERS of them without a
 * search. */
#define _GNU_SOURCE
#include "tuner_abi.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { FILE_BYTES_MAX = 4 << 20, LINE_MAX_CHARS = 255, FIELDS_MIN = 8, FIELDS_MAX = 10, CHANNELS_MAX = 64 };
enum { ANY = -1, NOT_SAID = -2, LAYERS = 4 };
static const uint64_t BYTES_MAX = INT64_MAX;

static const char *const OPS[TUNER_OPS] = {"broadcast", "reduce", "allgather", "reducescatter", "allreduce"};
static const char *const ALGORITHMS[TUNER_ALGORITHMS] = {"tree", "ring", "collnet_direct", "collnet_chain",
                                                         "nvls", "nvls_tree", "pat"};
static const char *const PROTOCOLS[TUNER_PROTOCOLS] = {"ll", "ll128", "simple"};

struct row {
  uint64_t low, high; /* bytes, both inside */
  int algorithm, protocol, channels, pipelined, registered;
};
struct scale { /* one operation: its rows in the order of the file, and which of them are the first from each size on */
  struct row *rows;
  uint64_t *from;
  int (*first)[LAYERS]; /* -1: no further one */
  int count, steps;
};
struct table {
  struct scale ops[TUNER_OPS];
};
struct asked {
  int op, pipelined, registered, algorithms, protocols;
  uint64_t bytes;
  const float *costs;       /* NULL for v2 */
  int has_collnet, has_nvls; /* of v2 */
};

/* ------------------------------------------------------------------------------------------------------------ words of a line */
struct reading {
  const char *path, *wrong;
  long line;
  size_t nodes, ranks;
};

static int word(const char *text, const char *const *known, int count) {
  for (int i = 0; i < count; i++)
    if (!strcmp(text, known[i])) return i;
  return -1;
}

/* A whole number from `least` on; what is above `most` is refused, or held at it for sizes. */
static int number(const char *text, int64_t least, uint64_t most, int is_size, int64_t *value) {
  int is_negative = *text == '-';
  const char *digit = text + is_negative;
  uint64_t sum = 0;
  int is_large = 0;
  if (!*digit || strlen(digit) > 20) return 0;
  for (; *digit; digit++) {
    if (*digit < '0' || *digit > '9') return 0;
    unsigned one = (unsigned)(*digit - '0');
    is_large |= sum > (UINT64_MAX - one) / 10;
    sum = sum * 10 + one;
  }
  if (is_negative) {
    *value = -1;
    return !is_large && sum == 1 && least <= -1;
  }
  if (is_large || sum > most) {
    *value = (int64_t)most;
    return is_size;
  }
  *value = (int64_t)sum;
  return *value >= least;
}

static char *trimmed(char *text) {
  text += strspn(text, " \t\r");
  size_t length = strlen(text);
  while (length && strchr(" \t\r", text[length - 1])) text[--length] = 0;
  return text;
}

static int refused(struct reading *at, const char *why) {
  at->wrong = why;
  return -1;
}

/* Returns 1 for a row of this communicator, 0 for one of others, -1 for a line that is refused. */
static int parse(char *line, struct reading *at, struct row *row, int *op) {
  char *fields[FIELDS_MAX + 1];
  int count = 0;
  for (char *rest = line; rest && count <= FIELDS_MAX;) fields[count++] = strsep(&rest, ",");
  if (count < FIELDS_MIN || count > FIELDS_MAX) return refused(at, "a line has 8 to 10 fields");
  for (int i = 0; i < count; i++) fields[i] = trimmed(fields[i]);
  int64_t value[FIELDS_MAX] = {[8] = ANY, [9] = ANY};
  *op = word(fields[0], OPS, TUNER_OPS);
  row->algorithm = word(fields[3], ALGORITHMS, TUNER_ALGORITHMS);
  row->protocol = word(fields[4], PROTOCOLS, TUNER_PROTOCOLS);
  if (*op < 0) return refused(at, "an unknown collective");
  if (row->algorithm < 0) return refused(at, "an unknown algorithm");
  if (row->protocol < 0) return refused(at, "an unknown protocol");
  for (int i = 1; i < 3; i++)
    if (!number(fields[i], 0, BYTES_MAX, 1, &value[i])) return refused(at, "a size that is no number");
  if (value[1] > value[2]) return refused(at, "a range of sizes that ends before it begins");
  if (!number(fields[5], ANY, CHANNELS_MAX, 0, &value[5]) || !value[5]) return refused(at, "channels are 1 to 64, or -1");
  for (int i = 6; i < count; i++)
    if (!number(fields[i], ANY, i == 9 ? 1 : INT32_MAX, 0, &value[i])) return refused(at, "a condition that is no number, nor -1");
  row->low = (uint64_t)value[1], row->high = (uint64_t)value[2];
  row->channels = (int)value[5], row->pipelined = (int)value[8], row->registered = (int)value[9];
  int is_ours = (value[6] == ANY || (uint64_t)value[6] == at->nodes) && (value[7] == ANY || (uint64_t)value[7] == at->ranks);
  return is_ours;
}

/* --------------------------------------------------------------------------------------------------------------- the whole file */
static char *whole(struct reading *at, size_t *size) {
  *size = 0;
  int number_of = open(at->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not keep the job waiting */
  FILE *file = number_of < 0 ? NULL : fdopen(number_of, "rb");
  if (!file) {
    at->wrong = strerror(errno);
    if (number_of >= 0) close(number_of);
    return NULL;
  }
  struct stat about;
  if (fstat(number_of, &about) || !S_ISREG(about.st_mode)) {
    fclose(file);
    at->wrong = "no plain file";
    return NULL;
  }
  char *text = malloc(FILE_BYTES_MAX + 2);
  if (text) *size = fread(text, 1, FILE_BYTES_MAX + 1, file);
  int failed = !text || ferror(file) || *size > FILE_BYTES_MAX;
  if (failed) at->wrong = text && *size > FILE_BYTES_MAX ? "larger than 4 MiB" : "cannot be read";
  fclose(file);
  if (!failed) return text;
  free(text);
  return NULL;
}

static int add(struct scale *scale, const struct row *row) {
  if (!(scale->count & (scale->count - 1))) { /* full at every power of two */
    struct row *larger = realloc(scale->rows, sizeof *larger * (size_t)(scale->count ? 2 * scale->count : 1));
    if (!larger) return 0;
    scale->rows = larger;
  }
  scale->rows[scale->count++] = *row;
  return 1;
}

static int read_rows(struct table *table, struct reading *at, char *text, size_t size) {
  for (char *line = text, *end = text + size; line < end;) {
    at->line++;
    char *stop = memchr(line, '\n', (size_t)(end - line));
    if (!stop) return refused(at, "the last line has no end: the file may be cut");
    *stop = 0;
    if (memchr(line, 0, (size_t)(stop - line))) return refused(at, "a zero byte");
    if (stop - line > LINE_MAX_CHARS) return refused(at, "a line longer than 255 characters");
    struct row row;
    int op, is_ours = *line == '#' || !*trimmed(line) ? 0 : parse(line, at, &row, &op);
    if (is_ours < 0) return -1;
    if (is_ours && !add(&table->ops[op], &row)) return refused(at, "out of memory");
    line = stop + 1;
  }
  return 0;
}

/* ------------------------------------------------------------------------------------------------------------ the line of sizes */
static int by_size(const void *one, const void *other) {
  uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
  return (a > b) - (a < b);
}

/* The last step that begins at or below a size; the first one begins at 0. */
static int step_of(const struct scale *scale, uint64_t bytes) {
  int low = 0, high = scale->steps;
  while (high - low > 1) {
    int middle = low + (high - low) / 2;
    if (scale->from[middle] <= bytes)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/* Give every stretch of sizes its first rows: they paint in the order of the file, and what has all its layers takes no more. */
static int paint(struct scale *scale) {
  size_t most = 2 * (size_t)scale->count + 1;
  uint64_t *from = scale->from = malloc(most * sizeof *from);
  scale->first = malloc(most * sizeof *scale->first);
  int *bare = malloc((most + 1) * sizeof *bare); /* from each step on, the next one that has a layer left */
  if (!from || !scale->first || !bare) {
    free(bare);
    return 0;
  }
  size_t ends = 0;
  from[ends++] = 0;
  for (int i = 0; i < scale->count; i++) from[ends++] = scale->rows[i].low, from[ends++] = scale->rows[i].high + 1;
  qsort(from, ends, sizeof *from, by_size);
  for (size_t i = 0; i < ends; i++)
    if (!i || from[i] != from[scale->steps - 1]) from[scale->steps++] = from[i];
  for (int i = 0; i <= scale->steps; i++) bare[i] = i;
  for (int i = 0; i < scale->steps; i++)
    for (int layer = 0; layer < LAYERS; layer++) scale->first[i][layer] = -1;
  for (int i = 0; i < scale->count; i++) {
    int last = step_of(scale, scale->rows[i].high);
    for (int step = step_of(scale, scale->rows[i].low);; step++) {
      while (bare[step] != step) step = bare[step] = bare[bare[step]];
      if (step > last) break;
      int layer = 0;
      while (scale->first[step][layer] >= 0) layer++;
      scale->first[step][layer] = i;
      if (layer == LAYERS - 1) bare[step] = step + 1;
    }
  }
  free(bare);
  return 1;
}

static int serves(const struct row *row, const struct asked *call) {
  if (call->bytes < row->low || call->bytes > row->high) return 0;
  if (row->pipelined != ANY && row->pipelined != call->pipelined) return 0;
  if (row->registered != ANY && row->registered != call->registered) return 0;
  if (row->algorithm >= call->algorithms || row->protocol >= call->protocols) return 0;
  if (call->costs) return call->costs[row->algorithm * call->protocols + row->protocol] != TUNER_NOT_AVAILABLE;
  int is_collnet = row->algorithm == TUNER_COLLNET_DIRECT || row->algorithm == TUNER_COLLNET_CHAIN;
  int is_nvls = row->algorithm == TUNER_NVLS || row->algorithm == TUNER_NVLS_TREE;
  return (!is_collnet || call->has_collnet) && (!is_nvls || call->has_nvls);
}

static const struct row *answer(const struct table *table, const struct asked *call) {
  if (!table || call->op < 0 || call->op >= TUNER_OPS) return NULL;
  const struct scale *scale = &table->ops[call->op];
  if (!scale->count) return NULL;
  const int *first = scale->first[step_of(scale, call->bytes)];
  for (int layer = 0; layer < LAYERS; layer++) {
    if (first[layer] < 0) return NULL;
    if (serves(&scale->rows[first[layer]], call)) return &scale->rows[first[layer]];
  }
  for (int i = first[LAYERS - 1] + 1; i < scale->count; i++)
    if (serves(&scale->rows[i], call)) return &scale->rows[i];
  return NULL;
}

/* ----------------------------------------------------------------------------------------------------------------- a communicator */
static void release(struct table *table) {
  if (!table) return;
  for (int op = 0; op < TUNER_OPS; op++) free(table->ops[op].rows), free(table->ops[op].from), free(table->ops[op].first);
  free(table);
}

static void tell(tuner_logger log, int level, const struct reading *at, const char *what) {
  static atomic_flag told[2] = {ATOMIC_FLAG_INIT, ATOMIC_FLAG_INIT};
  if (!log || atomic_flag_test_and_set(&told[level == TUNER_LOG_WARN])) return;
  if (level == TUNER_LOG_WARN)
    log(level, TUNER_LOG_TUNING, __FILE__, __LINE__, "TUNER/Ringwright: %s:%ld: %s; nothing is changed", at->path, at->line, what);
  else
    log(level, TUNER_LOG_TUNING, __FILE__, __LINE__, "TUNER/Ringwright: %s: %s", at->path ? at->path : "no table", what);
}

static int begin(size_t ranks, size_t nodes, tuner_logger log, void **context) {
  *context = NULL;
  struct reading at = {.path = getenv("NCCL_TUNER_CONFIG_FILE"), .nodes = nodes, .ranks = ranks};
  if (!at.path || !*at.path) {
    at.path = NULL;
    tell(log, TUNER_LOG_INFO, &at, "NCCL_TUNER_CONFIG_FILE is not set; nothing is changed");
    return TUNER_SUCCESS;
  }
  size_t size;
  char *text = whole(&at, &size);
  struct table *table = text ? calloc(1, sizeof *table) : NULL;
  if (text && !table) at.wrong = "out of memory";
  if (table) read_rows(table, &at, text, size);
  free(text);
  for (int op = 0; op < TUNER_OPS && table && !at.wrong; op++)
    if (table->ops[op].count && !paint(&table->ops[op])) at.wrong = "out of memory";
  if (at.wrong) {
    tell(log, TUNER_LOG_WARN, &at, at.wrong);
    release(table);
    return TUNER_SUCCESS;
  }
  tell(log, TUNER_LOG_INFO, &at, "the first row that holds decides");
  *context = table;
  return TUNER_SUCCESS;
}

static int begin_v5(void **context, uint64_t id, size_t ranks, size_t nodes, tuner_logger log, void *domains, void *constants) {
  (void)id, (void)domains, (void)constants;
  return begin(ranks, nodes, log, context);
}

static int end(void *context) {
  release(context);
  return TUNER_SUCCESS;
}

static int choose_v2(void *context, int op, size_t bytes, int collnet, int nvls, int pipelined, int *algorithm, int *protocol,
                     int *channels) {
  const struct row *row = answer(context, &(struct asked){op, pipelined, NOT_SAID, TUNER_ALGORITHMS_V2, TUNER_PROTOCOLS, bytes, NULL,
                                                          collnet, nvls});
  if (!row) return TUNER_SUCCESS;
  *algorithm = row->algorithm, *protocol = row->protocol;
  if (row->channels != ANY) *channels = row->channels;
  return TUNER_SUCCESS;
}

static int choose_v4(void *context, int op, size_t bytes, int pipelined, float **table, int algorithms, int protocols, int registered,
                     int *channels) {
  float *costs = (float *)table;
  const struct row *row = answer(context, &(struct asked){op, pipelined, registered, algorithms, protocols, bytes, costs, 1, 1});
  if (!row) return TUNER_SUCCESS;
  costs[row->algorithm * protocols + row->protocol] = 0.0f;
  if (row->channels != ANY) *channels = row->channels;
  return TUNER_SUCCESS;
}

static int choose_v3(void *context, int op, size_t bytes, int pipelined, float **table, int algorithms, int protocols, int *channels) {
  return choose_v4(context, op, bytes, pipelined, table, algorithms, protocols, NOT_SAID, channels);
}

#define PLUGIN(version, begins, beginning, chooses, choosing) \
  EXPORT struct tuner_plugin ncclTunerPlugin_v##version = { \
      "Ringwright", {.begins = beginning}, {.chooses = choosing}, end, NULL};
PLUGIN(2, v2, begin, v2, choose_v2)
PLUGIN(3, v2, begin, v3, choose_v3)
PLUGIN(4, v2, begin, v4, choose_v4)
PLUGIN(5, v5, begin_v5, v4, choose_v4)
PLUGIN(6, v5, begin_v5, v4, choose_v4)
PLUGIN(7, v5, begin_v5, v4, choose_v4)
