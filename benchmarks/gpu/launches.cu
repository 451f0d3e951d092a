// What it costs to start work, to wait for another stream and to hand work to a copy engine.
#include <cuda.h>

#include "product.cuh"

static __global__ void nothing() {}

namespace {

constexpr int kChain = 200;  // steps of a chain; twice that many commands still fit the device's queue

struct Streams {
    cudaStream_t here, there;
    cudaEvent_t left, right;
    Streams() {
        CHECK(cudaStreamCreateWithFlags(&here, cudaStreamNonBlocking));
        CHECK(cudaStreamCreateWithFlags(&there, cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&left, cudaEventDisableTiming));
        CHECK(cudaEventCreateWithFlags(&right, cudaEventDisableTiming));
    }
    void pass(cudaStream_t from, cudaStream_t to, cudaEvent_t by) const {
        CHECK(cudaEventRecord(by, from));
        CHECK(cudaStreamWaitEvent(to, by, 0));
    }
};

}  // namespace

static void start(cudaStream_t on, int blocks = 1, int threads = 32) {
    nothing<<<blocks, threads, 0, on>>>();
    CHECK(cudaGetLastError());
}

// A chain of steps, queued behind a gate (the device's own pace) or not (the host's, if it is slower).
template <class Chain>
static void chain(Run& run, const Streams& streams, const char* what, bool queued, int count, Chain&& steps_of_chain) {
    if (!run.left()) return;
    Row row("launches");
    std::vector<double> device, host;
    Marks marks;
    for (int repeat = 0; repeat < 25; ++repeat) {
        marks.clear();
        if (queued) gate(count * 14.0 + 100, streams.here);
        const cudaEvent_t origin = marks.mark(streams.here);
        const double begin = host_us();
        steps_of_chain(count);
        const double end = host_us();
        marks.mark(streams.here);
        CHECK(cudaDeviceSynchronize());
        if (repeat < 5) continue;
        device.push_back(marks.since_us(origin)[1] / count), host.push_back((end - begin) / count);
    }
    row.add("what", what).add("queued", queued).add("chain", count).times("step", spread(device)).times("host", spread(host));
    row.write(run);
}

static cudaGraphExec_t captured(const Streams& streams, int count, bool forked) {
    cudaGraph_t graph;
    cudaGraphExec_t out;
    CHECK(cudaStreamBeginCapture(streams.here, cudaStreamCaptureModeRelaxed));
    for (int i = 0; i < count; ++i) {
        start(streams.here);
        if (!forked) continue;
        streams.pass(streams.here, streams.there, streams.left);
        start(streams.here), start(streams.there);
        streams.pass(streams.there, streams.here, streams.right);
    }
    CHECK(cudaStreamEndCapture(streams.here, &graph));
    CHECK(cudaGraphInstantiate(&out, graph, 0));
    CHECK(cudaGraphUpload(out, streams.here));
    CHECK(cudaStreamSynchronize(streams.here));
    CHECK(cudaGraphDestroy(graph));
    return out;
}

static void graphs(Run& run, const Streams& streams) {
    for (int count : {1, 10, 100, 1000})
        for (bool forked : {false, true}) {
            if (!run.left()) continue;
            Row row("launches");
            const cudaGraphExec_t graph = captured(streams, count, forked);
            std::vector<double> host;
            const auto took = spread(rounds_us(
                streams.here, 20,
                [&](int) {
                    const double begin = host_us();
                    CHECK(cudaGraphLaunch(graph, streams.here));
                    host.push_back(host_us() - begin);
                },
                500));
            row.add("what", forked ? "graph of kernel, then two at once" : "graph of kernels").add("chain", count);
            row.times("graph", took).add("step_us", took.median / count).times("host", spread(host));
            row.write(run);
            CHECK(cudaGraphExecDestroy(graph));
        }
}

static void copies(Run& run, const Streams& streams) {
    constexpr size_t kMost = 4u << 20;
    uint8_t *device[2], *pinned;
    for (auto& each : device) CHECK(cudaMalloc(&each, kMost));
    CHECK(cudaMallocHost(&pinned, kMost));
    struct Kind {
        const char* text;
        uint8_t *to, *from;
    };
    for (size_t bytes : {size_t{4}, size_t{4096}, size_t{65536}, size_t{1} << 20, kMost})
        for (const Kind& kind : {Kind{"d2d", device[0], device[1]}, {"h2d", device[0], pinned}, {"d2h", pinned, device[0]}}) {
            const std::string what = std::string("copy ") + kind.text + " " + std::to_string(bytes) + " B";
            const int count = bytes > 65536 ? 40 : kChain;
            chain(run, streams, what.c_str(), true, count, [&](int steps) {
                for (int i = 0; i < steps; ++i)
                    CHECK(cudaMemcpyAsync(kind.to, kind.from, bytes, cudaMemcpyDefault, streams.here));
            });
            chain(run, streams, ("kernel, then " + what).c_str(), true, count, [&](int steps) {
                for (int i = 0; i < steps; ++i) {
                    start(streams.here);
                    CHECK(cudaMemcpyAsync(kind.to, kind.from, bytes, cudaMemcpyDefault, streams.here));
                }
            });
        }
}

// One stream writes a word, the other waits for it: how symmetric-memory code signals without the host.
static void words(Run& run, const Streams& streams) {
    using Word = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
    void* driver = library("libcuda.so.1");
    const auto write = symbol<Word>(driver, "cuStreamWriteValue32_v2"), wait = symbol<Word>(driver, "cuStreamWaitValue32_v2");
    uint32_t* word = nullptr;
    CHECK(cudaMalloc(&word, 8));
    CHECK(cudaMemset(word, 0, 8));
    const auto left = reinterpret_cast<CUdeviceptr>(word), right = reinterpret_cast<CUdeviceptr>(word + 1);
    uint32_t value = 0;
    bool works = true;
    chain(run, streams, "kernel, word to the other stream, kernel, word back", true, kChain / 2, [&](int steps) {
        streams.pass(streams.here, streams.there, streams.left);
        for (int i = 0; i < steps && works; ++i) {
            ++value;
            start(streams.here);
            works =
                works && !write(streams.here, left, value, 0) && !wait(streams.there, left, value, CU_STREAM_WAIT_VALUE_GEQ);
            start(streams.there);
            works =
                works && !write(streams.there, right, value, 0) && !wait(streams.here, right, value, CU_STREAM_WAIT_VALUE_GEQ);
        }
    });
    if (works) return;
    Row row("launches");
    row.add("what", "words between streams: the driver refused").write(run);
}

int section_launches(Run& run) {
    const Streams streams;
    gate(100e3, streams.here);  // warm clocks
    CHECK(cudaDeviceSynchronize());
    const auto kernels = [&](int blocks, int threads) {
        return [&streams, blocks, threads](int steps) {
            for (int i = 0; i < steps; ++i) start(streams.here, blocks, threads);
        };
    };
    for (bool queued : {true, false}) {
        chain(run, streams, "kernel of 1 block", queued, 2 * kChain, kernels(1, 32));
        chain(run, streams, "kernel of 132 blocks", queued, 2 * kChain, kernels(132, 512));
        chain(run, streams, "kernel of 1056 blocks", queued, 2 * kChain, kernels(1056, 512));
        chain(run, streams, "event", queued, 2 * kChain, [&](int steps) {
            for (int i = 0; i < steps; ++i) CHECK(cudaEventRecord(streams.left, streams.here));
        });
        chain(run, streams, "kernel, event, kernel in the other stream, event back", queued, kChain / 2, [&](int steps) {
            for (int i = 0; i < steps; ++i) {
                start(streams.here);
                streams.pass(streams.here, streams.there, streams.left);
                start(streams.there);
                streams.pass(streams.there, streams.here, streams.right);
            }
        });
    }
    words(run, streams);
    graphs(run, streams);
    copies(run, streams);
    return 0;
}
