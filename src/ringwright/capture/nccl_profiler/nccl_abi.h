/* What NCCL hands to a profiler plug-in, release by release: the memory layouts and numbers of the interfaces v1 to v6, written
 * down from the public interface. All versions share five entry points; only `init` and the event descriptor differ. */
#ifndef RINGWRIGHT_NCCL_ABI_H
#define RINGWRIGHT_NCCL_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { ABI_SUCCESS = 0, ABI_SYSTEM_ERROR = 2 };

/* Kinds of events, one bit each. */
enum {
  EV_GROUP = 1 << 0,
  EV_COLL = 1 << 1,
  EV_P2P = 1 << 2,
  EV_PROXY_OP = 1 << 3,
  EV_PROXY_STEP = 1 << 4,
  EV_PROXY_CTRL = 1 << 5,
  EV_KERNEL_CH = 1 << 6,
  EV_NET = 1 << 7,
  EV_GROUP_API = 1 << 8,
  EV_COLL_API = 1 << 9,
  EV_P2P_API = 1 << 10,
  EV_LAUNCH = 1 << 11,
  EV_CE_COLL = 1 << 12,
  EV_CE_SYNC = 1 << 13,
  EV_CE_BATCH = 1 << 14,
};

/* States that a running event passes through. 0 to 7 belong to proxy operations up to v3. */
enum {
  ST_OP_RECV_DONE = 7,
  ST_SEND_GPU_WAIT = 8,
  ST_SEND_WAIT = 9,
  ST_RECV_WAIT = 10,
  ST_RECV_FLUSH_WAIT = 11,
  ST_RECV_GPU_WAIT = 12,
  ST_CTRL_IDLE = 13,
  ST_CTRL_ACTIVE = 14,
  ST_CTRL_SLEEP = 15,
  ST_CTRL_WAKEUP = 16,
  ST_CTRL_APPEND = 17,
  ST_CTRL_APPEND_END = 18,
  ST_OP_IN_PROGRESS = 19,
  ST_SEND_PEER_WAIT = 20,
  ST_NET_UPDATE = 21,
  ST_KERNEL_STOP = 22,
  ST_GROUP_START_STOP = 23,
  ST_GROUP_END_START = 24,
};

struct abi_proxy_op {
  pid_t pid;
  uint8_t channel;
  int peer;
  int steps;
  int chunk_bytes;
  int is_send;
};
struct abi_proxy_step {
  int step;
};
struct abi_net {
  int64_t id;
  void *data;
};
struct abi_kernel_v3 {
  uint8_t channel;
};
struct abi_kernel {
  uint8_t channel;
  uint64_t gpu_ns;
};

struct abi_descr_v1 {
  uint8_t type;
  void *parent;
  int rank;
  union {
    struct {
      const char *name;
      uint64_t hash;
      uint64_t seq;
      uint8_t func;
      const void *send;
      void *recv;
      size_t count;
      int root;
      uint8_t datatype;
      uint32_t op;
      size_t traffic;
      uint8_t channels;
      uint8_t warps;
      uint8_t algo;
      uint8_t proto;
      int is_collnet;
      int is_nvls;
    } coll;
    struct {
      const char *name;
      uint64_t hash;
      uint8_t func;
      void *buffer;
      uint8_t datatype;
      size_t count;
      int peer;
    } p2p;
    struct abi_proxy_op proxy_op;
    struct abi_proxy_step proxy_step;
  };
};

struct abi_p2p_named {
  const char *name;
  uint64_t hash;
  const char *func;
  void *buffer;
  const char *datatype;
  size_t count;
  int peer;
};

struct abi_descr_v2 {
  uint8_t type;
  void *parent;
  int rank;
  union {
    struct {
      const char *name;
      uint64_t hash;
      uint64_t seq;
      const char *func;
      const void *send;
      void *recv;
      size_t count;
      int root;
      const char *datatype;
      size_t traffic;
      uint8_t channels;
      uint8_t warps;
      const char *algo;
      const char *proto;
    } coll;
    struct abi_p2p_named p2p;
    struct abi_proxy_op proxy_op;
    struct abi_proxy_step proxy_step;
  };
};

struct abi_descr_v3 {
  uint8_t type;
  void *parent;
  int rank;
  union {
    struct {
      const char *name;
      uint64_t hash;
      uint64_t seq;
      const char *func;
      const void *send;
      void *recv;
      size_t count;
      int root;
      const char *datatype;
      uint8_t channels;
      uint8_t warps;
      const char *algo;
      const char *proto;
    } coll;
    struct abi_p2p_named p2p;
    struct abi_proxy_op proxy_op;
    struct abi_proxy_step proxy_step;
    struct abi_kernel_v3 kernel;
    struct abi_net net;
  };
};

struct abi_descr_v4 {
  uint8_t type;
  void *parent;
  int rank;
  union {
    struct {
      uint64_t seq;
      const char *func;
      const void *send;
      void *recv;
      size_t count;
      int root;
      const char *datatype;
      uint8_t channels;
      uint8_t warps;
      const char *algo;
      const char *proto;
    } coll;
    struct {
      const char *func;
      void *buffer;
      const char *datatype;
      size_t count;
      int peer;
      uint8_t channels;
    } p2p;
    struct abi_proxy_op proxy_op;
    struct abi_proxy_step proxy_step;
    struct abi_kernel kernel;
    struct abi_net net;
  };
};

/* v6 is v5 with three more members in the union: one declaration serves both. */
struct abi_descr_v6 {
  uint64_t type;
  void *parent;
  int rank;
  union {
    struct {
      bool captured;
      int depth;
    } group_api;
    struct {
      const char *func;
      size_t count;
      const char *datatype;
      int root;
      void *stream;
      bool captured;
    } coll_api;
    struct {
      const char *func;
      size_t count;
      const char *datatype;
      void *stream;
      bool captured;
    } p2p_api;
    struct {
      void *stream;
    } launch;
    struct {
      uint64_t seq;
      const char *func;
      const void *send;
      void *recv;
      size_t count;
      int root;
      const char *datatype;
      uint8_t channels;
      uint8_t warps;
      const char *algo;
      const char *proto;
      void *group;
    } coll;
    struct {
      const char *func;
      void *buffer;
      const char *datatype;
      size_t count;
      int peer;
      uint8_t channels;
      void *group;
    } p2p;
    struct abi_proxy_op proxy_op;
    struct abi_proxy_step proxy_step;
    struct abi_kernel kernel;
    struct abi_net net;
    struct {
      uint64_t seq;
      const char *func;
      const void *send;
      void *recv;
      size_t count;
      int root;
      const char *datatype;
      const char *sync;
      bool intra_batch_sync;
      uint32_t batch_size;
      uint32_t batches;
      uint32_t ce_seq;
      void *stream;
    } ce_coll;
    struct {
      bool is_complete;
      int nranks;
    } ce_sync;
    struct {
      int ops;
      size_t bytes;
      bool intra_sync;
    } ce_batch;
  };
};

/* What comes with a change of state; which member holds is told by the state. v1 to v3 know only the first two. */
union abi_state {
  struct {
    size_t bytes;
    int steps;
  } proxy_op;
  struct {
    int appended;
  } proxy_ctrl;
  struct {
    size_t bytes;
  } proxy_step; /* from v4 on */
  struct {
    void *data;
  } net;
  struct {
    uint64_t gpu_ns;
  } kernel;
};

typedef void (*abi_logger)(int level, unsigned long flags, const char *file, int line, const char *format, ...);
typedef int (*abi_init_v1)(void **context, int *mask);
typedef int (*abi_init_v4)(void **context, int *mask, const char *name, uint64_t hash, int nnodes, int nranks, int rank,
                           abi_logger log);
typedef int (*abi_init_v5)(void **context, uint64_t id, int *mask, const char *name, int nnodes, int nranks, int rank,
                           abi_logger log);

struct abi_profiler {
  const char *name;
  union {
    abi_init_v1 v1; /* v1 to v3 */
    abi_init_v4 v4;
    abi_init_v5 v5; /* v5 and v6 */
  } init;
  int (*start)(void *context, void **handle, void *descr);
  int (*stop)(void *handle);
  int (*record)(void *handle, int state, void *arguments);
  int (*finalize)(void *context);
};

#endif
