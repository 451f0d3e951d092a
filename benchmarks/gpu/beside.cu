// A product beside communication: what each side loses while both run.
#include <cuda.h>

#include <map>

#include "product.cuh"

static constexpr int kSms[] = {1, 2, 4, 8, 16, 24, 32};

namespace {

// Buffers and streams of both sides; pinned host memory for the copies over the bus.
struct Bench {
    cudaStream_t here, there, urgent, extra;
    Product product;
    Operands operands;
    Field field;
    uint8_t *host_in = nullptr, *host_out = nullptr;
    static constexpr size_t kLocal = 256u << 20, kBus = 64u << 20;

    static cudaStream_t stream(int priority) {
        cudaStream_t out;
        CHECK(cudaStreamCreateWithPriority(&out, cudaStreamNonBlocking, priority));
        return out;
    }
    explicit Bench(const Run& run)
        : here(stream(0)),
          there(stream(0)),
          urgent(stream(-5)),
          extra(stream(0)),
          product(run, here),
          operands(8192, 8192, 8192),
          field(1ull << 30) {
        CHECK(cudaMallocHost(&host_in, kBus));
        CHECK(cudaMallocHost(&host_out, kBus));
        std::fill(host_in, host_in + kBus, uint8_t{7});
    }
    Spread alone(Shape shape, int count) {
        return spread(rounds_us(here, count, [&](int i) { operands.whole(product, shape, i); }, 300 + 8.0 * count));
    }
};

struct Rate {
    double gbs = 0, mhz = 0;
};

}  // namespace

static Rate rate_of(const Report& report, double window_us) {
    return {report.bytes / window_us / 1e3, report.ns ? report.cycles * 1e3 / report.ns : 0};
}

// Products go on after the neighbour has gone: the ones that follow it saw the same clocks, and are a second thing to compare
// with.
static constexpr double kMore = 1.45;

static double window_us(double product_us) { return std::clamp(16 * product_us, 6e3, 25e3); }

// The worker with nothing beside it, for the same time.
static Rate worker_alone(Bench& bench, Job job, int sms, double window) {
    static std::map<std::pair<Job, int>, Rate> known;
    const auto key = std::make_pair(job, sms);
    if (known.count(key)) return known[key];
    Marks marks;
    bench.field.clear(bench.there);
    const cudaEvent_t origin = marks.mark(bench.there);
    launch(job, sms, window, bench.field, bench.there);
    marks.mark(bench.there);
    CHECK(cudaStreamSynchronize(bench.there));
    return known[key] = rate_of(bench.field.read(), marks.since_us(origin)[1]);
}

// One long kernel on s multiprocessors, as a large collective is; products start once it holds them.
static void beside_worker(Run& run, Bench& bench, Shape shape, Job job, int sms, int target, int pass) {
    if (!run.left()) return;
    Row row("beside");
    bench.product.target(target);
    const Spread alone = bench.alone(shape, 10);
    const double window = window_us(alone.median);
    const Rate free = worker_alone(bench, job, sms, window);
    bench.field.clear(bench.there);
    CHECK(cudaStreamSynchronize(bench.there));
    const int count = static_cast<int>(window * kMore / alone.median) + 6;
    const Pair both = together(
        bench.here, count, [&](int i) { bench.operands.whole(bench.product, shape, i); }, bench.there, 1,
        [&](int) { launch(job, sms, window, bench.field, bench.there); }, 30);
    bench.product.target(0);
    const Rate busy = rate_of(bench.field.read(), both.other.last() - both.other.first());
    const Spread slowed = both.ours.inside(both.from(), both.to()), after = both.ours.inside(both.other.last(), INFINITY);
    add(row, shape).add("pass", pass).add("neighbour", std::string(name(job))).add("sms", sms).add("sm_target", target);
    row.times("alone", alone).times("beside", slowed).times("after", after).add("slowdown", slowed.median / alone.median);
    row.add("slowdown_after", slowed.median / after.median).add("traffic_per_byte", traffic(job));
    row.add("neighbour_alone_gbs", free.gbs).add("neighbour_beside_gbs", busy.gbs);
    row.add("sm_clock_mhz", busy.mhz).add("window_us", both.other.last() - both.other.first());
    row.add("both_us", both.to() - both.from())
        .add("covered", (both.to() - both.from()) / (both.other.last() - both.other.first()));
    row.write(run);
}

// Short kernels, one after the other, as many small collectives are: each has to wait for multiprocessors.
static void beside_short(Run& run, Bench& bench, Shape shape, int sms, bool urgent, double each_us, int pass) {
    if (!run.left()) return;
    Row row("entering");
    const cudaStream_t there = urgent ? bench.urgent : bench.there;
    const Spread alone = bench.alone(shape, 10);
    const int others = each_us > 10 ? 30 : 60;
    const double window = others * (each_us + 1.2 * alone.median);
    bench.field.clear(there);
    CHECK(cudaStreamSynchronize(there));
    const Spread free = spread(rounds_us(there, 20, [&](int) { launch(Job::copy, sms, each_us, bench.field, there); }, 400));
    bench.field.clear(there);
    CHECK(cudaStreamSynchronize(there));
    const Pair both = together(
        bench.here, std::min(900, static_cast<int>(window / alone.median) + 3),
        [&](int i) { bench.operands.whole(bench.product, shape, i); }, there, others,
        [&](int) { launch(Job::copy, sms, each_us, bench.field, there); }, 0);
    const Spread slowed = both.ours.inside(both.from(), both.to()), waited = both.other.inside(both.from(), both.to());
    add(row, shape).add("pass", pass).add("sms", sms).add("urgent", urgent).add("kernel_us", each_us);
    row.times("alone", alone).times("beside", slowed).times("neighbour_alone", free).times("neighbour_beside", waited);
    row.add("slowdown", slowed.mean / alone.mean).add("both_us", both.to() - both.from());
    row.write(run);
}

enum class Engine { local, in, out, duplex };

static constexpr const char* kEngines[] = {"copy-d2d", "copy-h2d", "copy-d2h", "copy-h2d+d2h"};

static void copy(Bench& bench, Engine engine) {
    const auto in = [&] {
        CHECK(cudaMemcpyAsync(bench.field.to, bench.host_in, Bench::kBus, cudaMemcpyHostToDevice, bench.there));
    };
    const auto out = [&](cudaStream_t stream) {
        CHECK(cudaMemcpyAsync(bench.host_out, bench.field.from, Bench::kBus, cudaMemcpyDeviceToHost, stream));
    };
    if (engine == Engine::local)
        CHECK(cudaMemcpyAsync(bench.field.to, bench.field.from, Bench::kLocal, cudaMemcpyDeviceToDevice, bench.there));
    if (engine == Engine::in) in();
    if (engine == Engine::out) out(bench.there);
    if (engine == Engine::duplex) {  // a round ends when both have arrived
        static cudaEvent_t fork = nullptr, join = nullptr;
        if (!fork) {
            CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
            CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
        }
        CHECK(cudaEventRecord(fork, bench.there));
        CHECK(cudaStreamWaitEvent(bench.extra, fork, 0));
        in();
        out(bench.extra);
        CHECK(cudaEventRecord(join, bench.extra));
        CHECK(cudaStreamWaitEvent(bench.there, join, 0));
    }
}

static void beside_engine(Run& run, Bench& bench, Shape shape, Engine engine, int pass) {
    if (!run.left()) return;
    Row row("beside");
    const Spread alone = bench.alone(shape, 10);
    const Spread free = spread(rounds_us(bench.there, 6, [&](int) { copy(bench, engine); }, 100, 2));
    const double window = std::max(window_us(alone.median), 8 * free.median);
    const Pair both = together(
        bench.here, std::min(900, static_cast<int>(window * kMore / alone.median) + 6),
        [&](int i) { bench.operands.whole(bench.product, shape, i); }, bench.there, static_cast<int>(window / free.median) + 2,
        [&](int) { copy(bench, engine); }, 0);
    const Spread slowed = both.ours.inside(both.from(), both.to()), copied = both.other.inside(both.from(), both.to());
    const Spread after = both.ours.inside(both.other.last(), INFINITY);
    const double bytes = engine == Engine::local ? Bench::kLocal : engine == Engine::duplex ? 2 * Bench::kBus : Bench::kBus;
    add(row, shape).add("pass", pass).add("neighbour", std::string(kEngines[static_cast<int>(engine)])).add("sms", 0);
    row.add("sm_target", 0).times("alone", alone).times("beside", slowed).times("after", after);
    row.add("slowdown", slowed.median / alone.median).add("slowdown_after", slowed.median / after.median);
    row.add("traffic_per_byte", engine == Engine::local ? 2 : 1).add("bytes", static_cast<size_t>(bytes));
    row.times("copy_alone", free).times("copy_beside", copied);
    row.add("neighbour_alone_gbs", bytes / free.median / 1e3).add("neighbour_beside_gbs", bytes / copied.median / 1e3);
    row.add("both_us", both.to() - both.from());
    row.write(run);
}

int section_beside(Run& run) {
    Bench bench(run);
    bench.alone({8192, 8192, 8192}, 40);  // warm clocks
    for (Engine engine : {Engine::local, Engine::in, Engine::out, Engine::duplex}) copy(bench, engine);
    CHECK(cudaDeviceSynchronize());
    for (int pass = 0; pass < 4; ++pass)
        for (const Shape shape : kShapes) {
            for (Engine engine : {Engine::local, Engine::in, Engine::out, Engine::duplex})
                beside_engine(run, bench, shape, engine, pass);
            for (int sms : kSms)
                for (Job job : {Job::copy, Job::hold, Job::add}) beside_worker(run, bench, shape, job, sms, 0, pass);
            for (int sms : {8, 16, 24, 32})
                for (Job job : {Job::hold, Job::copy}) beside_worker(run, bench, shape, job, sms, 132 - sms, pass);
            for (int sms : {8, 24})
                for (bool urgent : {false, true})
                    for (double each : {3.0, 200.0}) beside_short(run, bench, shape, sms, urgent, each, pass);
        }
    return 0;
}
