// Matrix products in bf16 with float32 sums, by cuBLAS: C[m, n] = A[m, k] W[n, k]^T, all row by row, as a linear layer has
// them.
#pragma once
#include <dlfcn.h>

#include "workers.cuh"

struct Shape {
    int m, n, k;
    double flop() const { return 2.0 * m * n * k; }
};

// One wave, two waves, several; then output and down projections of a 70B model over 8 ranks, and its gate-up projection.
inline const std::vector<Shape> kShapes = {{1024, 4096, 4096}, {2048, 4096, 4096}, {8192, 4096, 4096}, {8192, 8192, 8192},
                                           {8192, 8192, 1024}, {8192, 8192, 3584}, {8192, 7168, 8192}};

// Looked up at run time, so that neither a header nor a linker's name of the library is needed.
inline void* library(const std::string& path, bool needed = true) {
    void* out = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (out || !needed) return out;
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(2);
}

template <class Function>
Function symbol(void* of, const char* name) {
    void* out = dlsym(of, name);
    if (!out) {
        std::fprintf(stderr, "no %s in the library\n", name);
        std::exit(2);
    }
    return reinterpret_cast<Function>(out);
}

class Product {
  public:
    Product(const Run& run, cudaStream_t on) : stream(on) {
        const char* folder = run.libraries.c_str();
        for (const char* major : {"13", "12"}) {
            library(std::string(folder) + "/libcublasLt.so." + major, false);
            if ((own = library(std::string(folder) + "/libcublas.so." + major, false))) break;
        }
        if (!own) library(std::string(folder) + "/libcublas.so.13");
        gemm = symbol<Gemm>(own, "cublasGemmEx");
        good(symbol<int (*)(void**)>(own, "cublasCreate_v2")(&handle), "cublasCreate");
        good(symbol<int (*)(void*, cudaStream_t)>(own, "cublasSetStream_v2")(handle, stream), "cublasSetStream");
        CHECK(cudaMalloc(&space, kSpace));
        good(symbol<int (*)(void*, void*, size_t)>(own, "cublasSetWorkspace_v2")(handle, space, kSpace), "cublasSetWorkspace");
    }
    int version() const {
        int out = 0;
        good(symbol<int (*)(void*, int*)>(own, "cublasGetVersion_v2")(handle, &out), "cublasGetVersion");
        return out;
    }
    // Multiprocessors that the library is to plan for; 0 means all.
    void target(int sms) const {
        good(symbol<int (*)(void*, int)>(own, "cublasSetSmCountTarget")(handle, sms), "cublasSetSmCountTarget");
    }
    // Strides are elements from one row to the next.
    void operator()(const bf16* a, const bf16* w, bf16* c, Shape shape, int stride_a, int stride_w, int stride_c,
                    bool more = false) const {
        constexpr int kBf16 = 14, kTransposed = 1, kPlain = 0, kSums = 68, kDefault = -1;
        const float one = 1, old = more ? 1 : 0;
        good(gemm(handle, kTransposed, kPlain, shape.n, shape.m, shape.k, &one, w, kBf16, stride_w, a, kBf16, stride_a, &old, c,
                  kBf16, stride_c, kSums, kDefault),
             "cublasGemmEx");
    }
    cudaStream_t stream;

  private:
    using Gemm = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*,
                         void*, int, int, int, int);
    static constexpr size_t kSpace = 64u << 20;
    void *own = nullptr, *handle = nullptr, *space = nullptr;
    Gemm gemm = nullptr;
    static void good(int status, const char* call) {
        if (status == 0) return;
        std::fprintf(stderr, "%s: status %d\n", call, status);
        std::exit(1);
    }
};

// Several sets of operands, used in turn, so that no product starts with its own operands in the cache.
class Operands {
  public:
    static constexpr int kSets = 3;
    Operands(size_t most_m, size_t most_n, size_t most_k) {
        for (int i = 0; i < kSets; ++i) {
            CHECK(cudaMalloc(&a[i], most_m * most_k * sizeof(bf16)));
            CHECK(cudaMalloc(&w[i], most_n * most_k * sizeof(bf16)));
            CHECK(cudaMalloc(&c[i], most_m * most_n * sizeof(bf16)));
            fill<<<1024, 256>>>(a[i], most_m * most_k, 10 + i);
            fill<<<1024, 256>>>(w[i], most_n * most_k, 20 + i);
            fill<<<1024, 256>>>(c[i], most_m * most_n, 30 + i);
        }
        CHECK(cudaDeviceSynchronize());
    }
    void whole(const Product& product, Shape shape, int round) const {
        const int i = round % kSets;
        product(a[i], w[i], c[i], shape, shape.k, shape.k, shape.n);
    }
    // The same product as `pieces` smaller ones, cut along rows (m), columns (n) or the summed dimension (k).
    void cut(const Product& product, Shape shape, char along, int pieces, int round) const {
        const int i = round % kSets;
        Shape part = shape;
        (along == 'm' ? part.m : along == 'n' ? part.n : part.k) /= pieces;
        for (int j = 0; j < pieces; ++j) {
            const size_t row = along == 'm' ? static_cast<size_t>(j) * part.m : 0;
            const size_t column = along == 'n' ? static_cast<size_t>(j) * part.n : 0;
            const size_t deep = along == 'k' ? static_cast<size_t>(j) * part.k : 0;
            product(a[i] + row * shape.k + deep, w[i] + column * shape.k + deep, c[i] + row * shape.n + column, part, shape.k,
                    shape.k, shape.n, along == 'k' && j > 0);
        }
    }
    bf16 *a[kSets], *w[kSets], *c[kSets];
};

inline Row& add(Row& row, Shape shape) { return row.add("m", shape.m).add("n", shape.n).add("k", shape.k); }
