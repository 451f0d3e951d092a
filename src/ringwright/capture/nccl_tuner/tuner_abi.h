/* What NCCL hands to a tuner plug-in, release by release: the memory layouts and numbers of the interfaces v2 to v7, written down
 * from the public interface. v2 gets the choice as three numbers; from v3 on the plug-in lowers an entry of a table of costs. */
#ifndef RINGWRIGHT_TUNER_ABI_H
#define RINGWRIGHT_TUNER_ABI_H

#include <stddef.h>
#include <stdint.h>

enum { TUNER_SUCCESS = 0, TUNER_SYSTEM_ERROR = 2 };
enum { TUNER_LOG_WARN = 2, TUNER_LOG_INFO = 3 };
enum { TUNER_LOG_TUNING = 64 }; /* the part of NCCL that a line of its log is of */

/* Operations, algorithms and protocols in NCCL's numbers. */
enum { TUNER_OPS = 5, TUNER_ALGORITHMS = 7, TUNER_ALGORITHMS_V2 = 6, TUNER_PROTOCOLS = 3 };
enum { TUNER_COLLNET_DIRECT = 2, TUNER_COLLNET_CHAIN = 3, TUNER_NVLS = 4, TUNER_NVLS_TREE = 5 };

/* The cost of a pair of algorithm and protocol that NCCL has ruled out. */
#define TUNER_NOT_AVAILABLE (-1.0f)

typedef void (*tuner_logger)(int level, unsigned long flags, const char *file, int line, const char *format, ...);

typedef int (*tuner_init_v2)(size_t ranks, size_t nodes, tuner_logger log, void **context);
typedef int (*tuner_init_v5)(void **context, uint64_t id, size_t ranks, size_t nodes, tuner_logger log, void *domains,
                             void *constants);
typedef int (*tuner_choose_v2)(void *context, int op, size_t bytes, int collnet, int nvls, int pipelined, int *algorithm,
                               int *protocol, int *channels);
typedef int (*tuner_choose_v3)(void *context, int op, size_t bytes, int pipelined, float **costs, int algorithms, int protocols,
                               int *channels);
typedef int (*tuner_choose_v4)(void *context, int op, size_t bytes, int pipelined, float **costs, int algorithms, int protocols,
                               int registered, int *channels);
typedef int (*tuner_chunk_v6)(void *context, int op, size_t bytes, int algorithm, int protocol, int channels, size_t *chunk_bytes);

/* The costs are one block, a row of protocols for each algorithm, whatever the pointer's type says. */
struct tuner_plugin {
  const char *name;
  union {
    tuner_init_v2 v2; /* v2 to v4 */
    tuner_init_v5 v5; /* v5 to v7 */
  } init;
  union {
    tuner_choose_v2 v2;
    tuner_choose_v3 v3;
    tuner_choose_v4 v4; /* v4 to v7 */
  } choose;
  int (*end)(void *context);
  tuner_chunk_v6 chunk; /* from v6 on; may be NULL */
};

#endif
