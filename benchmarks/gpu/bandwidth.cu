// Memory bandwidth by the number of multiprocessors that ask for it, how two kernels share it, and what copy engines do at
// once.
#include <functional>

#include "workers.cuh"

// A few streams, used again: too many would share the device's queues and wait for each other.
static cudaStream_t stream(size_t number) {
    static std::vector<cudaStream_t> made;
    while (made.size() <= number) {
        made.emplace_back();
        CHECK(cudaStreamCreateWithFlags(&made.back(), cudaStreamNonBlocking));
    }
    return made[number];
}

static const std::vector<int> kGrids = {1,  2,  3,  4,  6,  8,  10, 12,  16,  20,  24, 28,
                                        32, 40, 48, 56, 64, 80, 96, 112, 120, 128, 132};

// What s multiprocessors move: `space` says where the data lies.
static void by_sms(Run& run, const char* space, const Field& field, Job job, int threads, int pass) {
    const cudaStream_t here = stream(0);
    for (int sms : kGrids) {
        if (!run.left()) continue;
        Row row("bandwidth");
        std::vector<double> rates;
        double mhz = 0;
        for (int repeat = 0; repeat < 4; ++repeat) {
            Marks marks;
            field.clear(here);
            const cudaEvent_t origin = marks.mark(here);
            launch(job, sms, 3000, field, here, threads);
            marks.mark(here);
            CHECK(cudaStreamSynchronize(here));
            const Report report = field.read();
            if (repeat) rates.push_back(report.bytes / marks.since_us(origin)[1] / 1e3);
            mhz = report.ns ? report.cycles * 1e3 / report.ns : 0;
        }
        const Spread got = spread(rates);
        row.add("space", space).add("job", std::string(name(job))).add("sms", sms).add("threads", threads).add("pass", pass);
        row.add("payload_gbs", got.median).add("least_gbs", got.least).add("most_gbs", got.most).add("samples", got.count);
        row.add("traffic_gbs", got.median * traffic(job)).add("sm_clock_mhz", mhz);
        row.write(run);
    }
}

// Two workers at once on multiprocessors of their own: does each get its share by multiprocessors, by requests, or by asking?
static void shared(Run& run, const Field& left, const Field& right) {
    const cudaStream_t here = stream(0), there = stream(1);
    for (Job other : {Job::copy, Job::add, Job::read, Job::write})
        for (int sms : {4, 8, 16, 24, 32, 66}) {
            if (!run.left()) continue;
            Row row("shared");
            const auto rate = [&](bool first, bool second) {
                Marks one, two;
                left.clear(here), right.clear(there);
                CHECK(cudaDeviceSynchronize());
                gate(50, here);
                const cudaEvent_t origin = one.mark(here);
                CHECK(cudaStreamWaitEvent(there, origin, 0));
                two.mark(there);
                if (first) launch(Job::copy, sms, 4000, left, here);
                if (second) launch(other, 132 - sms, 4000, right, there);
                one.mark(here), two.mark(there);
                CHECK(cudaDeviceSynchronize());
                const double a = one.since_us(origin)[1], b = two.since_us(origin)[1] - two.since_us(origin)[0];
                return std::make_pair(left.read().bytes / a / 1e3, right.read().bytes / b / 1e3);
            };
            std::vector<double> copies, others, copy_alone, other_alone;
            for (int repeat = 0; repeat < 5; ++repeat) {
                copy_alone.push_back(rate(true, false).first);
                other_alone.push_back(rate(false, true).second);
                const auto [copy, beside] = rate(true, true);
                copies.push_back(copy), others.push_back(beside);
            }
            row.add("copy_sms", sms).add("other", std::string(name(other))).add("other_sms", 132 - sms);
            row.add("copy_alone_gbs", spread(copy_alone).median).add("other_alone_gbs", spread(other_alone).median);
            row.add("copy_beside_gbs", spread(copies).median).add("other_beside_gbs", spread(others).median);
            row.add("copy_traffic_per_byte", 2).add("other_traffic_per_byte", traffic(other)).add("samples", copies.size());
            row.write(run);
        }
}

// Copies by engine at once; a copy inside the device that finishes while every multiprocessor is held needs none of them.
static void engines(Run& run, const Field& field) {
    constexpr size_t kBus = 64u << 20, kLocal = 256u << 20;
    uint8_t* pinned[2];
    for (auto& host : pinned) CHECK(cudaMallocHost(&host, kBus));
    auto* device = reinterpret_cast<uint8_t*>(field.from);
    auto* other = reinterpret_cast<uint8_t*>(field.to);
    const auto in = [&](int i, cudaStream_t on) {
        CHECK(cudaMemcpyAsync(device + i * kBus, pinned[i], kBus, cudaMemcpyHostToDevice, on));
    };
    const auto out = [&](int i, cudaStream_t on) {
        CHECK(cudaMemcpyAsync(pinned[i], device + (2 + i) * kBus, kBus, cudaMemcpyDeviceToHost, on));
    };
    const auto local = [&](cudaStream_t on) {
        CHECK(cudaMemcpyAsync(other + kLocal, device + kLocal, kLocal, cudaMemcpyDeviceToDevice, on));
    };
    struct Case {
        const char* text;
        std::vector<std::function<void(cudaStream_t)>> sides;
        std::vector<double> bytes;
    };
    const std::function<void(cudaStream_t)> in0 = [&](cudaStream_t s) { in(0, s); }, in1 = [&](cudaStream_t s) { in(1, s); };
    const std::function<void(cudaStream_t)> out0 = [&](cudaStream_t s) { out(0, s); },
                                            out1 = [&](cudaStream_t s) { out(1, s); };
    const std::function<void(cudaStream_t)> here0 = [&](cudaStream_t s) { local(s); };
    const double bus = kBus, inner = kLocal;
    const std::vector<Case> cases = {{"h2d", {in0}, {bus}},
                                     {"d2h", {out0}, {bus}},
                                     {"d2d", {here0}, {inner}},
                                     {"h2d+h2d", {in0, in1}, {bus, bus}},
                                     {"d2h+d2h", {out0, out1}, {bus, bus}},
                                     {"h2d+d2h", {in0, out0}, {bus, bus}},
                                     {"d2d+d2d", {here0, here0}, {inner, inner}},
                                     {"h2d+d2h+d2d", {in0, out0, here0}, {bus, bus, inner}}};
    for (const Case& which : cases) {
        if (!run.left()) continue;
        Row row("engines");
        std::vector<cudaStream_t> on(which.sides.size());
        std::vector<Marks> marks(on.size());
        for (size_t i = 0; i < on.size(); ++i) on[i] = stream(i);
        gate(400, on[0]);
        const cudaEvent_t origin = marks[0].mark(on[0]);
        for (size_t i = 1; i < on.size(); ++i) {
            CHECK(cudaStreamWaitEvent(on[i], origin, 0));
            marks[i].mark(on[i]);
        }
        for (size_t i = 0; i < on.size(); ++i)
            for (int round = 0; round < (which.bytes[i] == inner ? 60 : 10); ++round) {
                which.sides[i](on[i]);
                marks[i].mark(on[i]);
            }
        CHECK(cudaDeviceSynchronize());
        double until = INFINITY;
        std::vector<Track> tracks;
        for (Marks& each : marks) tracks.push_back({each.since_us(origin)}), until = std::min(until, tracks.back().last());
        row.add("copies", which.text);
        for (size_t i = 0; i < on.size(); ++i) {
            const Spread took = tracks[i].inside(0, until);
            const std::string side = "side" + std::to_string(i);
            row.times(side, took).add(side + "_gbs", which.bytes[i] / took.median / 1e3);
        }
        row.add("both_us", until);
        row.write(run);
    }
    Row row("engines");
    const cudaStream_t held = stream(0), free = stream(1);
    Marks marks;
    launch(Job::hold, 132, 20e3, field, held, 1024, kWholeSm);
    for (const double begin = host_us(); host_us() - begin < 300;) {
    }  // by now every multiprocessor is held
    const cudaEvent_t origin = marks.mark(free);
    local(free);
    marks.mark(free);
    CHECK(cudaStreamSynchronize(free));
    const bool still = cudaStreamQuery(held) == cudaErrorNotReady;
    cudaGetLastError();  // "not ready" is an answer here, and must not look like a failed launch later
    CHECK(cudaDeviceSynchronize());
    row.add("copies", "d2d while 132 multiprocessors are held")
        .add("copy_us", marks.since_us(origin)[1])
        .add("needs_no_sm", still);
    row.write(run);
}

int section_bandwidth(Run& run) {
    const Field large(1ull << 30), second(1ull << 30), cached(8ull << 20);
    const cudaStream_t warm = stream(0);
    for (Job job : {Job::copy, Job::add, Job::read, Job::write, Job::hold}) launch(job, 132, 30e3, large, warm);
    CHECK(cudaDeviceSynchronize());
    Field bus(1 << 20);
    Words* host = nullptr;
    CHECK(cudaHostAlloc(&host, 256u << 20, cudaHostAllocMapped));
    std::fill_n(reinterpret_cast<uint8_t*>(host), 256u << 20, uint8_t{3});
    bus.words = (256u << 20) / sizeof(Words);
    for (int pass = 0; pass < 2; ++pass) {
        for (Job job : {Job::copy, Job::add, Job::read, Job::write}) by_sms(run, "memory", large, job, kThreads, pass);
        bus.from = large.from, bus.to = host;
        by_sms(run, "to host", bus, Job::copy, kThreads, pass);
        bus.from = host, bus.to = large.to;
        by_sms(run, "from host", bus, Job::copy, kThreads, pass);
        for (Job job : {Job::copy, Job::add}) by_sms(run, "cache", cached, job, kThreads, pass);
        for (Job job : {Job::copy, Job::add}) by_sms(run, "memory", large, job, 1024, pass);
        for (Job job : {Job::copy, Job::add}) by_sms(run, "memory", large, job, 256, pass);
        if (pass == 0) shared(run, large, second), engines(run, large);
    }
    return 0;
}
