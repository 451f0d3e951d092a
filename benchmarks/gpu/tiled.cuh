// A tiled product that counts finished tiles, and a copy that waits for the counts.
#pragma once
#include <cuda_pipeline.h>
#include <mma.h>

#include "product.cuh"

constexpr int kTile = 128, kDeep = 64, kPitch = kDeep + 8, kStages = 3, kOutPitch = kTile + 4;
constexpr int kTileBytes = kStages * 2 * kTile * kPitch * sizeof(bf16);
static_assert(kTile * kOutPitch * sizeof(float) <= kTileBytes);

static __device__ void fetch(bf16* stage, const bf16* a, const bf16* w, int k, int stride) {
    for (int i = 0; i < 4; ++i) {
        const int piece = threadIdx.x + i * 256, row = piece / 8, column = piece % 8 * 8;
        __pipeline_memcpy_async(stage + row * kPitch + column, a + static_cast<size_t>(row) * stride + k + column, 16);
        __pipeline_memcpy_async(stage + (kTile + row) * kPitch + column, w + static_cast<size_t>(row) * stride + k + column,
                                16);
    }
}

// One tile of C = A W^T; tiles of a stretch of `tall` tile rows come before those of the next. `done` counts them, if given.
static __global__ void __launch_bounds__(256, 2)
    tiled(const bf16* a, const bf16* w, bf16* c, int n, int k, int tall, unsigned* done) {
    using namespace nvcuda;
    extern __shared__ __align__(128) bf16 stages[];
    const int of_stretch = tall * (n / kTile), stretch = blockIdx.x / of_stretch, within = blockIdx.x % of_stretch;
    const int row = (stretch * tall + within % tall) * kTile, column = within / tall * kTile;
    const int warp = threadIdx.x / 32, down = warp % 4 * 32, across = warp / 4 * 64;
    a += static_cast<size_t>(row) * k, w += static_cast<size_t>(column) * k;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[2][4];
    for (auto& line : sums)
        for (auto& each : line) wmma::fill_fragment(each, 0.0f);
    const int rounds = k / kDeep;
    for (int i = 0; i < kStages - 1; ++i) {
        if (i < rounds) fetch(stages + i * 2 * kTile * kPitch, a, w, i * kDeep, k);
        __pipeline_commit();
    }
    for (int i = 0; i < rounds; ++i) {
        __pipeline_wait_prior(kStages - 2);
        __syncthreads();  // this stage has come for all, and all have left the one that is filled next
        const int next = i + kStages - 1;
        if (next < rounds) fetch(stages + next % kStages * 2 * kTile * kPitch, a, w, next * kDeep, k);
        __pipeline_commit();
        const bf16 *left = stages + i % kStages * 2 * kTile * kPitch, *right = left + kTile * kPitch;
#pragma unroll
        for (int deep = 0; deep < kDeep; deep += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, bf16, wmma::row_major> x[2];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, bf16, wmma::col_major> y[4];
            for (int j = 0; j < 2; ++j) wmma::load_matrix_sync(x[j], left + (down + j * 16) * kPitch + deep, kPitch);
            for (int j = 0; j < 4; ++j) wmma::load_matrix_sync(y[j], right + (across + j * 16) * kPitch + deep, kPitch);
            for (int j = 0; j < 2; ++j)
                for (int l = 0; l < 4; ++l) wmma::mma_sync(sums[j][l], x[j], y[l], sums[j][l]);
        }
    }
    __pipeline_wait_prior(0);
    __syncthreads();
    auto* out = reinterpret_cast<float*>(stages);
    for (int j = 0; j < 2; ++j)
        for (int l = 0; l < 4; ++l)
            wmma::store_matrix_sync(out + (down + j * 16) * kOutPitch + across + l * 16, sums[j][l], kOutPitch,
                                    wmma::mem_row_major);
    __syncthreads();
    for (int i = 0; i < kTile * kTile / 8 / 256; ++i) {
        const int piece = threadIdx.x + i * 256, y = piece / 16, x = piece % 16 * 8;
        Words packed;
        auto* halves = reinterpret_cast<__nv_bfloat162*>(&packed);
        for (int j = 0; j < 4; ++j)
            halves[j] = __floats2bfloat162_rn(out[y * kOutPitch + x + 2 * j], out[y * kOutPitch + x + 2 * j + 1]);
        *reinterpret_cast<Words*>(c + static_cast<size_t>(row + y) * n + column + x) = packed;
    }
    if (!done) return;
    __syncthreads();
    if (threadIdx.x) return;
    __threadfence_system();  // the tile before its count, for copy engines too
    atomicAdd_system(done + stretch, 1u);
}

static __device__ unsigned acquired(const unsigned* word) {
    unsigned out;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(out) : "l"(word) : "memory");
    return out;
}

// Copies stretch by stretch, each once `needed` tiles of it are done. Gives up after two thousand million cycles: a second.
static __global__ void __launch_bounds__(512) copy_done(const Words* from, Words* to, size_t words, int stretches,
                                                        const unsigned* done, unsigned needed, unsigned* gave_up) {
    for (int stretch = 0; stretch < stretches; ++stretch) {
        if (threadIdx.x == 0 && needed) {
            const long long begin = clock64();
            while (acquired(done + stretch) < needed) {
                if (clock64() - begin > 2'000'000'000ll) {
                    *gave_up = 1;
                    break;
                }
                __nanosleep(100);
            }
        }
        __syncthreads();
        const size_t base = stretch * words, round = static_cast<size_t>(gridDim.x) * 512;
        for (size_t i = static_cast<size_t>(blockIdx.x) * 512 + threadIdx.x; i < words; i += round * kUnroll) {
            Words got[kUnroll];
#pragma unroll
            for (int j = 0; j < kUnroll; ++j)
                if (i + j * round < words) got[j] = __ldcg(from + base + i + j * round);
#pragma unroll
            for (int j = 0; j < kUnroll; ++j)
                if (i + j * round < words) __stcg(to + base + i + j * round, got[j]);
        }
    }
}

static __global__ void difference(const bf16* left, const bf16* right, size_t count, double* sums) {
    double off = 0, all = 0;
    for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count;
         i += static_cast<size_t>(gridDim.x) * blockDim.x) {
        const double a = __bfloat162float(left[i]), b = __bfloat162float(right[i]);
        off += (a - b) * (a - b), all += b * b;
    }
    atomicAdd(sums, off), atomicAdd(sums + 1, all);
}
