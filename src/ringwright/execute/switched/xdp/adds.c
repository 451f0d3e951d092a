/* A switch that adds, inside the kernel: `adds` sums frames as they reach a port, `onward` addresses the copies of a sum.
 *
 * Frames and rules are those of frames.py and pool.py beside this folder. Numbers of the wire stay big-endian in memory.
 * `adds` runs on every port. It takes frames of data for the address in `settings`; all others, and short ones by which
 * workers come and go, go on to the kernel and the program on its socket. A copy whose sum is not complete goes there too: that
 * program says who is missing. A complete sum goes to all ports at once with no receiver, and `onward` gives each copy its own.
 *
 * No header of the system is included: what is needed of them stands here.
 */

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define ENTRIES(name, number) int(*name)[number]
#define SWAP16 __builtin_bswap16
#define SWAP32 __builtin_bswap32

/* --- the kernel's side: linux/bpf.h ------------------------------------------------------------------------------------- */

struct xdp_md {
    u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};
struct bpf_spin_lock {
    u32 val;
};
enum { XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT };
enum { HASH = 1, ARRAY = 2, PERCPU_ARRAY = 6, LRU_HASH = 9, DEVMAP_HASH = 25 };
enum { ANY = 0, BROADCAST = 8 };

static void *(*lookup)(void *map, const void *key) = (void *)1;
static long (*update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static u32 (*drawn)(void) = (void *)7;
static long (*redirect)(void *map, u64 key, u64 flags) = (void *)51;
static long (*lock)(struct bpf_spin_lock *) = (void *)93;
static long (*unlock)(struct bpf_spin_lock *) = (void *)94;

/* --- maps: program.py knows the same layouts ---------------------------------------------------------------------------- */

struct sender {
    u32 address;
    u16 port, zero;
};
struct seat { /* where somebody is reached: behind which port, and the hardware addresses of both ends */
    u32 ifindex, address;
    u16 port;
    u8 theirs[6], ours[6], zero[2];
};
struct settings {
    u32 address, above; /* our own; of the switch above, or 0 */
    u16 port, above_port, short_bytes, zero;
    u64 loses; /* of 2^32 frames */
};
struct member {
    u64 token;
    u32 job, worker;
};
struct job {
    u64 sealed, said, upward; /* whether tokens end frames; the switch's own; as a worker of the one above */
    u64 heard;                /* frames of its workers so far, more or less: whether it is at work */
    u32 first, slots, full, width;
    u32 begins, is_int8, is_root, is_on; /* begins: the first byte of its frames */
    struct seat above;
};
struct behind {
    u32 job, ifindex;
};
struct version {
    u32 seen, held, tsi;
    short exponent;
    u16 zero;
    u64 sums[128];
};
struct slot {
    struct bpf_spin_lock turn;
    u32 known, newest[32];
    struct version versions[2];
};

#define MAP(kind, keys, values, most, name) \
    struct { ENTRIES(type, kind); keys *key; values *value; ENTRIES(max_entries, most); } name SECTION(".maps")

MAP(ARRAY, u32, struct settings, 1, settings);
MAP(ARRAY, u32, struct job, 256, jobs);
MAP(ARRAY, u32, struct slot, 1, slots); /* as many as the switch has: set when it is loaded */
MAP(HASH, struct sender, struct member, 8192, members);
MAP(HASH, struct behind, struct seat, 8192, seats);
MAP(LRU_HASH, struct sender, struct seat, 4096, spoken); /* whoever has sent a short frame, and through which port */
MAP(PERCPU_ARRAY, u32, u64, 16, counts);
struct {
    ENTRIES(type, DEVMAP_HASH);
    ENTRIES(key_size, 4);
    ENTRIES(value_size, 8);
    ENTRIES(max_entries, 256);
} ports SECTION(".maps");

enum count { FRAMES, ADDED, REPEATED, STALE, MISMATCHED, MALFORMED, STRANGERS, LOST, RESULTS };

/* --- frames ------------------------------------------------------------------------------------------------------------- */

struct __attribute__((packed)) packet {
    u8 to[6], from[6];
    u16 kind;
    u8 ihl, tos;
    u16 total, id, fragment;
    u8 ttl, protocol;
    u16 check;
    u32 source, target;
    u16 source_port, target_port, udp_bytes, udp_check;
    u8 begins, job;
    u32 tsi;
    u16 pool;
};

enum { BEFORE = sizeof(struct packet), LEAST = BEFORE - 8, MOST_WORDS = 128 };

INLINE void count(u32 which) {
    u64 *number = lookup(&counts, &which);
    if (number)
        *number += 1;
}

INLINE int is_udp(struct packet *p) {
    return p->kind == SWAP16(0x0800) && p->ihl == 0x45 && p->protocol == 17 && !(p->fragment & SWAP16(0xBFFF));
}

INLINE void six(u8 *to, const u8 *from) {
    for (int i = 0; i < 6; i++)
        to[i] = from[i];
}

/* Fill in what depends on the receiver, and sum up the header. */
INLINE void address(struct packet *p, u32 own, u16 own_port, u32 target, u16 target_port) {
    u32 sum = 0;
    p->source = own, p->target = target;
    p->source_port = own_port, p->target_port = target_port;
    p->id = 0, p->fragment = SWAP16(0x4000), p->ttl = 64, p->check = 0;
    p->udp_check = 0; /* none, which IPv4 allows */
    u16 *words = (u16 *)((u8 *)p + 14);
    for (int i = 0; i < 10; i++)
        sum += words[i];
    sum = (sum & 0xFFFF) + (sum >> 16);
    sum = (sum & 0xFFFF) + (sum >> 16);
    p->check = ~sum;
}

INLINE u64 plus32(u64 a, u64 b) {
    u32 low = SWAP32(SWAP32((u32)a) + SWAP32((u32)b));
    u32 high = SWAP32(SWAP32((u32)(a >> 32)) + SWAP32((u32)(b >> 32)));
    return (u64)high << 32 | low;
}

/* Eight sums of bytes in one word: the top bits apart, so that none carries into its neighbour. */
INLINE u64 plus8(u64 a, u64 b) {
    const u64 top = 0x8080808080808080ULL;
    return ((a & ~top) + (b & ~top)) ^ ((a ^ b) & top);
}

/* What is done with the values of a frame and of a slot; `p` holds the slot's afterwards. */
enum act { NOTHING, STORE, ADD32, ADD8, READ };

INLINE void values(u64 *p, u64 *sums, u32 act, const int words) {
    if (act == STORE)
        for (int i = 0; i < words; i++)
            sums[i] = p[i];
    else if (act == ADD32)
        for (int i = 0; i < words; i++)
            p[i] = sums[i] = plus32(sums[i], p[i]);
    else if (act == ADD8)
        for (int i = 0; i < words; i++)
            p[i] = sums[i] = plus8(sums[i], p[i]);
    else
        for (int i = 0; i < words; i++)
            p[i] = sums[i];
}

/* The values, and behind them the exponent of the chunk that comes next: of it the largest is kept. */
INLINE void summed(void *data, struct version *v, u32 act, const int words) {
    u64 *p = data + BEFORE;
    u16 *next = data + BEFORE + 8 * words;
    values(p, v->sums, act, words);
    short said = SWAP16(*next);
    if (act == STORE || (act != READ && said > v->exponent))
        v->exponent = said;
    *next = SWAP16(v->exponent);
}

/* --- one frame of a worker ---------------------------------------------------------------------------------------------- */

enum verdict { TAKEN, IS_STALE, IS_MISMATCHED, COMPLETE, AGAIN, UPWARD, WAITS };

struct frame {
    u32 worker, tsi, version;
    int is_result; /* of the switch above */
};

/* What the rules say of a frame, before its values are looked at: a verdict, and what to do with them. */
INLINE u32 judged(struct slot *s, struct version *v, const struct frame *f, const struct job *j, u32 *act) {
    u32 bit = 1u << (f->worker & 31), full = j->full;
    *act = NOTHING;
    if (f->is_result) {
        if (v->seen != full || v->held || v->tsi != f->tsi)
            return IS_STALE;
        v->held = 1;
        *act = STORE;
        return COMPLETE;
    }
    u32 *newest = &s->newest[f->worker & 31];
    int age = (int)(f->tsi - *newest); /* numbers may wrap around */
    int is_known = !!(s->known & bit), is_open = v->seen && v->seen != full;
    if (is_known && age <= 0) {
        if (age || v->tsi != f->tsi)
            return IS_STALE;
        if (v->seen != full)
            return WAITS;
        *act = READ;
        return v->held ? AGAIN : UPWARD;
    }
    if (is_open && v->tsi != f->tsi)
        return IS_MISMATCHED;
    *act = !is_open ? STORE : j->is_int8 ? ADD8 : ADD32;
    *newest = f->tsi, s->known |= bit;
    v->tsi = f->tsi;
    v->seen = (is_open ? v->seen : 0) | bit;
    if (v->seen != full)
        return TAKEN;
    v->held = j->is_root;
    return j->is_root ? COMPLETE : UPWARD;
}

INLINE u32 taken(struct slot *s, const struct frame *f, const struct job *j, void *data, const int words) {
    struct version *v = &s->versions[f->version & 1];
    u32 act, verdict;
    lock(&s->turn);
    verdict = judged(s, v, f, j, &act);
    if (act != NOTHING)
        summed(data, v, act, words);
    unlock(&s->turn);
    return verdict | act << 8;
}

/* Where a frame's token stands: behind its exponent. */
INLINE u64 *token(void *data, const int words) { return data + BEFORE + 8 * words + 2; }

/* Sum one frame; what becomes of it. `words`: of eight bytes of values. */
INLINE int served(struct xdp_md *ctx, struct frame f, struct job *j, u64 sealed_by, const int words) {
    void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
    struct packet *p = data;
    if (data + BEFORE + 8 * words + 2 > end)
        return XDP_DROP;
    if (j->sealed && ((void *)(token(data, words) + 1) > end || *token(data, words) != sealed_by)) {
        count(STRANGERS);
        return XDP_DROP;
    }
    u32 at = SWAP16(p->pool) & 0x3FFF;
    u32 index = j->first + at;
    struct slot *s = lookup(&slots, &index);
    j->heard++;
    if (!s || at >= j->slots || p->begins != j->begins) {
        count(MALFORMED);
        return XDP_DROP;
    }
    f.version = SWAP16(p->pool) >> 15, f.tsi = SWAP32(p->tsi);
    u32 verdict = taken(s, &f, j, data, words), act = verdict >> 8;
    verdict &= 255;
    if (verdict == IS_STALE || verdict == IS_MISMATCHED) {
        if (!f.is_result)
            count(verdict == IS_STALE ? STALE : MISMATCHED);
        return XDP_DROP;
    }
    count(f.is_result ? RESULTS : act == READ || verdict == WAITS ? REPEATED : ADDED);
    if (verdict == WAITS)
        return XDP_PASS;
    if (verdict == TAKEN)
        return XDP_DROP;
    if (j->sealed && (void *)(token(data, words) + 1) <= end)
        *token(data, words) = verdict == UPWARD ? j->upward : j->said;
    p->pool &= SWAP16(0xBFFF); /* a bit between slot and version has no meaning */
    u32 own = p->target;
    u16 own_port = p->target_port;
    if (verdict == UPWARD) {
        six(p->to, j->above.theirs), six(p->from, j->above.ours);
        address(p, own, own_port, j->above.address, j->above.port);
        return redirect(&ports, j->above.ifindex, XDP_DROP);
    }
    if (verdict == AGAIN) {
        u8 back[6];
        six(back, p->from), six(p->from, p->to), six(p->to, back);
        address(p, own, own_port, p->source, p->source_port);
        return redirect(&ports, ctx->ingress_ifindex, XDP_DROP);
    }
    address(p, own, own_port, 0, 0); /* to nobody: `onward` says to whom */
    return redirect(&ports, 0, BROADCAST);
}

/* Remember through which port a short frame came: from there its worker is reached, once it may join. */
INLINE void remembered(struct xdp_md *ctx, struct packet *p, const struct sender *who) {
    struct seat seat = {.ifindex = ctx->ingress_ifindex, .address = who->address, .port = who->port};
    six(seat.theirs, p->from), six(seat.ours, p->to);
    update(&spoken, who, &seat, ANY);
}

SECTION("xdp") int adds(struct xdp_md *ctx) {
    struct packet *p = (void *)(long)ctx->data;
    u32 zero = 0;
    struct settings *own = lookup(&settings, &zero);
    if (!own || (void *)(p + 1) > (void *)(long)ctx->data_end || !is_udp(p))
        return XDP_PASS;
    if (p->target != own->address || p->target_port != own->port)
        return XDP_PASS;
    count(FRAMES);
    if (own->loses && drawn() < own->loses) {
        count(LOST);
        return XDP_DROP;
    }
    struct sender who = {.address = p->source, .port = p->source_port};
    u32 bytes = SWAP16(p->udp_bytes) - 8;
    if (bytes == own->short_bytes) {
        remembered(ctx, p, &who);
        return XDP_PASS;
    }
    struct frame f = {.is_result = own->above && who.address == own->above && who.port == own->above_port};
    struct member *member = lookup(&members, &who);
    u32 number = p->job;
    struct job *j = lookup(&jobs, &number);
    if (!j || !j->is_on || bytes != j->width || (!f.is_result && (!member || member->job != number))) {
        count(STRANGERS);
        return XDP_DROP;
    }
    u64 sealed_by = j->said; /* by the switch above, whose token for a session is ours too */
    if (!f.is_result && member)
        f.worker = member->worker, sealed_by = member->token;
    switch (j->begins & 7) {
    case 0:
        return served(ctx, f, j, sealed_by, MOST_WORDS / 8);
    case 1:
        return served(ctx, f, j, sealed_by, MOST_WORDS / 4);
    case 2:
        return served(ctx, f, j, sealed_by, MOST_WORDS / 2);
    default:
        return served(ctx, f, j, sealed_by, MOST_WORDS);
    }
}

/* A copy of a sum leaves through a port: give it the worker of that job behind it, or let it go where there is none. */
SECTION("xdp/devmap") int onward(struct xdp_md *ctx) {
    struct packet *p = (void *)(long)ctx->data;
    if ((void *)(p + 1) > (void *)(long)ctx->data_end)
        return XDP_DROP;
    if (p->target)
        return XDP_PASS;
    struct behind key = {.job = p->job, .ifindex = ctx->egress_ifindex};
    struct seat *seat = lookup(&seats, &key);
    if (!seat)
        return XDP_DROP;
    six(p->to, seat->theirs), six(p->from, seat->ours);
    address(p, p->source, p->source_port, seat->address, seat->port);
    return XDP_PASS;
}

char licence[] SECTION("license") = "Apache-2.0";
