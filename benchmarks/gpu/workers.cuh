// Kernels that stand for communication: a grid of s blocks, each alone on its multiprocessor, as a collective's channels are.
#pragma once
#include <cuda_bf16.h>

#include <cstdint>

#include "measure.h"

using bf16 = __nv_bfloat16;
using Words = uint4;  // 16 bytes
constexpr int kThreads = 512, kUnroll = 8;  // of a worker's block; 64 KiB a round
constexpr int kOwnSm = 120 * 1024;  // shared memory that lets no second worker onto the multiprocessor
constexpr int kWholeSm = 227 * 1024;  // and that lets nothing else onto it
constexpr double kCyclesPerUs = 1980;  // at the highest clock; a slower one makes windows longer, not rates

enum class Job { hold, copy, add, read, write };

inline const char* name(Job job) {
    constexpr const char* names[] = {"hold", "copy", "add", "read", "write"};
    return names[static_cast<int>(job)];
}

// Bytes of memory traffic for a byte of payload.
inline int traffic(Job job) {
    constexpr int touched[] = {0, 2, 3, 1, 1};
    return touched[static_cast<int>(job)];
}

__device__ inline uint64_t global_ns() {
    uint64_t out;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(out));
    return out;
}

__device__ inline Words added(Words left, Words right) {
    const auto* a = reinterpret_cast<const __nv_bfloat162*>(&left);
    const auto* b = reinterpret_cast<const __nv_bfloat162*>(&right);
    Words out;
    auto* c = reinterpret_cast<__nv_bfloat162*>(&out);
    for (int i = 0; i < 4; ++i) c[i] = __hadd2(a[i], b[i]);
    return out;
}

// What a worker reports: payload bytes of all threads, and the cycles and nanoseconds of its first block.
struct Report {
    unsigned long long bytes, cycles, ns;
};

// Works for a number of cycles, so that what runs beside it has a neighbour all the time, and counts what it moved.
template <Job job>
__global__ void __launch_bounds__(1024) worker(const Words* from, Words* to, size_t words, long long cycles, Report* report) {
    const long long begin = clock64();
    const uint64_t begin_ns = global_ns();
    const size_t chunk = static_cast<size_t>(blockDim.x) * kUnroll, chunks = words / chunk;
    unsigned long long rounds = 0;
    Words sum = {0, 0, 0, 0};
    for (size_t at = blockIdx.x % chunks; clock64() - begin < cycles; at = (at + gridDim.x) % chunks, ++rounds) {
        const size_t first = at * chunk + threadIdx.x;
        Words got[kUnroll], old[kUnroll];
        if constexpr (job == Job::copy || job == Job::add || job == Job::read)
#pragma unroll
            for (int i = 0; i < kUnroll; ++i) got[i] = __ldcg(from + first + static_cast<size_t>(i) * blockDim.x);
        if constexpr (job == Job::add)
#pragma unroll
            for (int i = 0; i < kUnroll; ++i) old[i] = __ldcg(to + first + static_cast<size_t>(i) * blockDim.x);
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) {
            Words* target = to + first + static_cast<size_t>(i) * blockDim.x;
            if constexpr (job == Job::copy) __stcg(target, got[i]);
            if constexpr (job == Job::add) __stcg(target, added(got[i], old[i]));
            if constexpr (job == Job::write) __stcg(target, Words{static_cast<unsigned>(rounds), 1u, 2u, 3u});
            if constexpr (job == Job::read) sum.x ^= got[i].x, sum.y ^= got[i].y, sum.z ^= got[i].z, sum.w ^= got[i].w;
        }
    }
    if constexpr (job == Job::read)  // never true of the data, but the compiler cannot know
        if (sum.x == 0x12345678u && sum.y == 0x9abcdef0u && sum.z == 0x0fedcba9u && sum.w == 0x87654321u) *to = sum;
    if constexpr (job != Job::hold) atomicAdd(&report->bytes, rounds * kUnroll * sizeof(Words));
    if (blockIdx.x == 0 && threadIdx.x == 0) report->cycles = clock64() - begin, report->ns = global_ns() - begin_ns;
}

static __global__ void spin(long long cycles) {
    const long long begin = clock64();
    while (clock64() - begin < cycles) {
    }
}

// Numbers in [-1/8, 1/8) from a hash: zeros would draw less power and run faster than real data.
static __global__ void fill(bf16* data, size_t count, unsigned seed) {
    for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count;
         i += static_cast<size_t>(gridDim.x) * blockDim.x) {
        uint64_t mixed = (i + 1) * 0x9e3779b97f4a7c15ull + seed * 0xbf58476d1ce4e5b9ull;
        mixed = (mixed ^ (mixed >> 31)) * 0x94d049bb133111ebull;
        data[i] = __float2bfloat16(((mixed >> 40) / 16777216.0f - 0.5f) * 0.25f);
    }
}

inline void allow_whole_sm() {
    const auto allow = [](auto kernel) {
        CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kWholeSm));
    };
    allow(worker<Job::hold>), allow(worker<Job::copy>), allow(worker<Job::add>);
    allow(worker<Job::read>), allow(worker<Job::write>);
}

// Where workers read and write; apart from the operands of products, and many times the cache.
struct Field {
    Words *from = nullptr, *to = nullptr;
    size_t words = 0;
    Report* report = nullptr;
    explicit Field(size_t bytes) : words(bytes / sizeof(Words)) {
        CHECK(cudaMalloc(&from, bytes));
        CHECK(cudaMalloc(&to, bytes));
        CHECK(cudaMalloc(&report, sizeof(Report)));
        fill<<<1024, 256>>>(reinterpret_cast<bf16*>(from), bytes / 2, 1u);
        fill<<<1024, 256>>>(reinterpret_cast<bf16*>(to), bytes / 2, 2u);
        CHECK(cudaDeviceSynchronize());
        allow_whole_sm();
    }
    Report read() const {
        Report out;
        CHECK(cudaMemcpy(&out, report, sizeof out, cudaMemcpyDeviceToHost));
        return out;
    }
    void clear(cudaStream_t stream) const { CHECK(cudaMemsetAsync(report, 0, sizeof(Report), stream)); }
};

inline void launch(Job job, int sms, double window_us, const Field& field, cudaStream_t stream, int threads = kThreads,
                   int shared = kOwnSm) {
    const long long cycles = static_cast<long long>(window_us * kCyclesPerUs);
    const auto start = [&](auto kernel) {
        kernel<<<sms, threads, shared, stream>>>(field.from, field.to, field.words, cycles, field.report);
    };
    switch (job) {
        case Job::hold:
            start(worker<Job::hold>);
            break;
        case Job::copy:
            start(worker<Job::copy>);
            break;
        case Job::add:
            start(worker<Job::add>);
            break;
        case Job::read:
            start(worker<Job::read>);
            break;
        case Job::write:
            start(worker<Job::write>);
            break;
    }
    CHECK(cudaGetLastError());
}

inline void gate(double us, cudaStream_t stream) {
    spin<<<1, 1, 0, stream>>>(static_cast<long long>(us * kCyclesPerUs));
    CHECK(cudaGetLastError());
}

// Times (us) of rounds that follow each other in a stream; a gate holds them back until the host has queued what it can.
template <class Launch>
std::vector<double> rounds_us(cudaStream_t stream, int count, Launch&& round, double gate_us, int warm = 3) {
    static Marks marks;
    marks.clear();
    gate(gate_us, stream);
    const cudaEvent_t origin = marks.mark(stream);
    for (int i = 0; i < count + warm; ++i) {
        round(i);
        marks.mark(stream);
    }
    CHECK(cudaStreamSynchronize(stream));
    const std::vector<double> all = steps(marks.since_us(origin));
    return {all.begin() + std::min<size_t>(warm, all.size()), all.end()};
}

// Two sides that start together: `other` first, `ours` after `delay_us`, so that a worker has its multiprocessors.
struct Pair {
    Track ours, other;
    double from() const { return std::max(ours.first(), other.first()); }
    double to() const { return std::min(ours.last(), other.last()); }
};

template <class Ours, class Other>
Pair together(cudaStream_t here, int count, Ours&& ours, cudaStream_t there, int others, Other&& other, double delay_us) {
    static Marks start, left, right;
    start.clear(), left.clear(), right.clear();
    gate(std::min(4000.0, 300.0 + 8.0 * (count + others)), here);
    const cudaEvent_t origin = start.mark(here);
    CHECK(cudaStreamWaitEvent(there, origin, 0));
    right.mark(there);
    for (int i = 0; i < others; ++i) {
        other(i);
        right.mark(there);
    }
    if (delay_us > 0) gate(delay_us, here);
    left.mark(here);
    for (int i = 0; i < count; ++i) {
        ours(i);
        left.mark(here);
    }
    CHECK(cudaDeviceSynchronize());
    return {{left.since_us(origin)}, {right.since_us(origin)}};
}
