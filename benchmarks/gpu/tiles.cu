// A product whose tiles say when they are done, and a copy that starts on each stretch of rows as its tiles are there.
#include <cuda.h>

#include "tiled.cuh"

namespace {

using Word = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);

struct Yard {
    cudaStream_t here, there;
    cudaEvent_t fork, join;
    Product product;
    Operands operands;
    bf16* remote;  // stands for the memory of another rank
    uint8_t *host, *seen;  // and for a slow link to it
    unsigned *done, *gave_up;
    double* sums;
    Word wait;
    static constexpr size_t kMost = size_t{8192} * 8192 * sizeof(bf16);

    static cudaStream_t stream(int priority) {
        cudaStream_t out;
        CHECK(cudaStreamCreateWithPriority(&out, cudaStreamNonBlocking, priority));
        return out;
    }
    explicit Yard(const Run& run) : here(stream(0)), there(stream(-5)), product(run, here), operands(8192, 8192, 4096) {
        CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
        CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
        CHECK(cudaMalloc(&remote, kMost));
        CHECK(cudaMallocHost(&host, kMost));
        CHECK(cudaMallocHost(&seen, kMost));
        CHECK(cudaMalloc(&done, 256 * sizeof(unsigned)));
        CHECK(cudaMalloc(&gave_up, sizeof(unsigned)));
        CHECK(cudaMemset(gave_up, 0, sizeof(unsigned)));
        CHECK(cudaMalloc(&sums, 2 * sizeof(double)));
        CHECK(cudaFuncSetAttribute(tiled, cudaFuncAttributeMaxDynamicSharedMemorySize, kTileBytes));
        CHECK(cudaFuncSetAttribute(copy_done, cudaFuncAttributeMaxDynamicSharedMemorySize, kOwnSm));
        wait = symbol<Word>(library("libcuda.so.1"), "cuStreamWaitValue32_v2");
    }
    void pass(cudaStream_t from, cudaStream_t to, cudaEvent_t by) const {
        CHECK(cudaEventRecord(by, from));
        CHECK(cudaStreamWaitEvent(to, by, 0));
    }
};

// How the result leaves: by a kernel on s multiprocessors, or by an engine to this device or to the host.
struct Carrier {
    const char* text;
    int sms;
};

constexpr Carrier kCarriers[] = {{"kernel", 4},  {"kernel", 8},     {"kernel", 16},
                                 {"kernel", 32}, {"engine d2d", 0}, {"engine d2h", 0}};

}  // namespace

static bool to_host(const Carrier& by) { return std::string(by.text) == "engine d2h"; }

static void carry(const Yard& yard, Shape shape, const Carrier& by, cudaStream_t on, int stretch, int stretches, int count,
                  unsigned needed) {
    const size_t bytes = static_cast<size_t>(shape.m) * shape.n * sizeof(bf16) / stretches, at = stretch * bytes;
    const auto* from = reinterpret_cast<const uint8_t*>(yard.operands.c[0]) + at;
    auto* remote = reinterpret_cast<uint8_t*>(yard.remote) + at;
    if (by.sms) {
        copy_done<<<by.sms, 512, kOwnSm, on>>>(reinterpret_cast<const Words*>(from), reinterpret_cast<Words*>(remote),
                                               bytes / sizeof(Words), count, yard.done, needed, yard.gave_up);
        CHECK(cudaGetLastError());
        return;
    }
    for (int i = 0; i < count; ++i) {
        if (needed && yard.wait(on, reinterpret_cast<CUdeviceptr>(yard.done + stretch + i), needed, CU_STREAM_WAIT_VALUE_GEQ))
            std::exit(3);
        void* target = to_host(by) ? yard.host + at + i * bytes : remote + i * bytes;
        CHECK(cudaMemcpyAsync(target, from + i * bytes, bytes, to_host(by) ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice,
                              on));
    }
}

static void multiply(const Yard& yard, Shape shape, int stretches, bool flags) {
    const int rows = shape.m / kTile;
    tiled<<<rows*(shape.n / kTile), 256, kTileBytes, yard.here>>>(yard.operands.a[0], yard.operands.w[0], yard.operands.c[0],
                                                                  shape.n, shape.k, rows / stretches,
                                                                  flags ? yard.done : nullptr);
    CHECK(cudaGetLastError());
}

// `before` is queued and not timed; what follows it is timed until all of it is done.
template <class Before, class Work>
static Spread timed(const Yard& yard, Before&& before, Work&& work, int count = 9, int warm = 2) {
    Marks marks;
    std::vector<double> out;
    for (int i = 0; i < count + warm; ++i) {
        marks.clear();
        before();
        const cudaEvent_t origin = marks.mark(yard.here);
        work();
        marks.mark(yard.here);
        CHECK(cudaDeviceSynchronize());
        if (i >= warm) out.push_back(marks.since_us(origin)[1]);
    }
    return spread(out);
}

// Whether what has arrived is what was computed, after both were spoilt.
template <class All>
static void verify(const Yard& yard, Row& row, Shape shape, const Carrier& by, All&& all) {
    const size_t count = static_cast<size_t>(shape.m) * shape.n, bytes = count * sizeof(bf16);
    CHECK(cudaMemset(yard.operands.c[0], 0xff, bytes));
    CHECK(cudaMemset(yard.remote, 0xff, bytes));
    std::fill(yard.host, yard.host + bytes, uint8_t{0xff});
    CHECK(cudaDeviceSynchronize());
    all();
    CHECK(cudaDeviceSynchronize());
    if (to_host(by)) CHECK(cudaMemcpy(yard.remote, yard.host, bytes, cudaMemcpyHostToDevice));
    yard.product(yard.operands.a[0], yard.operands.w[0], yard.operands.c[1], shape, shape.k, shape.k, shape.n);
    CHECK(cudaMemset(yard.sums, 0, 2 * sizeof(double)));
    CHECK(cudaDeviceSynchronize());
    difference<<<1024, 256>>>(yard.remote, yard.operands.c[1], count, yard.sums);
    double sums[2];
    unsigned gave_up = 0;
    CHECK(cudaMemcpy(sums, yard.sums, sizeof sums, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&gave_up, yard.gave_up, sizeof gave_up, cudaMemcpyDeviceToHost));
    row.add("relative_error", std::sqrt(sums[0] / sums[1])).add("gave_up", gave_up != 0);
}

static void triggered(Run& run, const Yard& yard, Shape shape, const Carrier& by, int stretches) {
    if (!run.left()) return;
    Row row("tiles");
    const auto none = [] {};
    CHECK(cudaMemset(yard.gave_up, 0, sizeof(unsigned)));
    const unsigned needed = static_cast<unsigned>(shape.m / kTile / stretches * (shape.n / kTile));
    const auto clear = [&] { CHECK(cudaMemsetAsync(yard.done, 0, 256 * sizeof(unsigned), yard.here)); };
    const auto before = [&] {
        gate(30.0 + 12.0 * stretches, yard.here);
        clear();
        yard.pass(yard.here, yard.there, yard.fork);
        carry(yard, shape, by, yard.there, 0, stretches, stretches, needed);
        gate(20, yard.here);  // until the copy holds its multiprocessors
    };
    const auto work = [&] {
        multiply(yard, shape, stretches, true);
        yard.pass(yard.there, yard.here, yard.join);
    };
    const Spread plain = timed(yard, none, [&] { multiply(yard, shape, stretches, false); });
    const Spread flagged = timed(yard, clear, [&] { multiply(yard, shape, stretches, true); });
    const Spread copy = timed(yard, none, [&] { carry(yard, shape, by, yard.here, 0, stretches, stretches, 0); });
    const Spread serial = timed(yard, none, [&] {
        multiply(yard, shape, stretches, false);
        carry(yard, shape, by, yard.here, 0, 1, 1, 0);
    });
    const Spread both = timed(yard, before, work);
    add(row, shape).add("product", "tiled").add("trigger", "flags").add("carrier", by.text).add("sms", by.sms);
    row.add("pieces", stretches)
        .times("product", plain)
        .times("product_flags", flagged)
        .times("copy", copy)
        .times("serial", serial);
    row.times("overlapped", both).add("product_tflops", shape.flop() / plain.median / 1e6);
    row.add("copy_gbs", 2.0 * shape.m * shape.n / copy.median / 1e3).add("speedup", serial.median / both.median);
    row.add("hidden", (plain.median + copy.median - both.median) / std::min(plain.median, copy.median));
    verify(yard, row, shape, by, [&] { before(), work(); });
    row.write(run);
}

// The library's product cut into row pieces; each piece is carried away once its event has come.
static void chunked(Run& run, const Yard& yard, Shape shape, const Carrier& by, int pieces) {
    if (!run.left()) return;
    Row row("tiles");
    const Shape part{shape.m / pieces, shape.n, shape.k};
    const auto piece = [&](int i) {
        const size_t first = static_cast<size_t>(i) * part.m;
        yard.product(yard.operands.a[0] + first * shape.k, yard.operands.w[0], yard.operands.c[0] + first * shape.n, part,
                     shape.k, shape.k, shape.n);
    };
    const auto products = [&] {
        for (int i = 0; i < pieces; ++i) piece(i);
    };
    const auto held = [&] { gate(30.0 + 25.0 * pieces, yard.here); };
    const auto work = [&] {
        for (int i = 0; i < pieces; ++i) {
            piece(i);
            yard.pass(yard.here, yard.there, yard.fork);
            carry(yard, shape, by, yard.there, i, pieces, 1, 0);
        }
        yard.pass(yard.there, yard.here, yard.join);
    };
    const auto copies = [&] {
        for (int i = 0; i < pieces; ++i) carry(yard, shape, by, yard.here, i, pieces, 1, 0);
    };
    const auto whole = [&] {
        yard.product(yard.operands.a[0], yard.operands.w[0], yard.operands.c[0], shape, shape.k, shape.k, shape.n);
    };
    const Spread one = timed(yard, held, whole), parts = timed(yard, held, products), copy = timed(yard, held, copies);
    const Spread serial = timed(yard, held, [&] {
        whole();
        carry(yard, shape, by, yard.here, 0, 1, 1, 0);
    });
    const Spread both = timed(yard, held, work);
    add(row, shape)
        .add("product", "cublas")
        .add("trigger", "events")
        .add("carrier", by.text)
        .add("sms", by.sms)
        .add("pieces", pieces);
    row.times("product", one)
        .times("product_pieces", parts)
        .times("copy", copy)
        .times("serial", serial)
        .times("overlapped", both);
    row.add("product_tflops", shape.flop() / one.median / 1e6).add("copy_gbs", 2.0 * shape.m * shape.n / copy.median / 1e3);
    row.add("speedup", serial.median / both.median);
    row.add("hidden", (one.median + copy.median - both.median) / std::min(one.median, copy.median));
    verify(yard, row, shape, by, work);
    row.write(run);
}

int section_tiles(Run& run) {
    const Yard yard(run);
    for (const Shape shape : {Shape{8192, 8192, 4096}, {8192, 8192, 1024}, {8192, 4096, 4096}})
        for (const Carrier& by : kCarriers) {
            for (int stretches : {1, 4, 16, 64}) triggered(run, yard, shape, by, stretches);
            for (int pieces : {1, 2, 4, 8, 16}) chunked(run, yard, shape, by, pieces);
        }
    return 0;
}
