// Work between collectives as one kernel or as several: what fusing saves at each size.
#include "workers.cuh"

static __device__ unsigned mixed(size_t at) {
    unsigned x = static_cast<unsigned>(at) * 0x9e3779b9u;
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    return x ^ (x >> 13);
}

template <class Each>
static __device__ void each_word(size_t words, Each&& each) {
    for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < words;
         i += static_cast<size_t>(gridDim.x) * blockDim.x)
        each(i);
}

// Keeps nine of ten elements, by a hash of their number; the same in both forms.
static __device__ Words dropped(Words value, size_t at) {
    auto* halves = reinterpret_cast<__nv_bfloat162*>(&value);
    for (int i = 0; i < 4; ++i) {
        const unsigned bits = mixed(at * 4 + i);
        const float low = (bits & 0xffffu) < 58982u ? 1.1111f : 0.0f, high = (bits >> 16) < 58982u ? 1.1111f : 0.0f;
        const float2 given = __bfloat1622float2(halves[i]);
        halves[i] = __floats2bfloat162_rn(given.x * low, given.y * high);
    }
    return value;
}

static __global__ void bias(const Words* x, const Words* b, size_t width, Words* out, size_t words) {
    each_word(words, [&](size_t i) { out[i] = added(x[i], b[i % width]); });
}
static __global__ void dropout(const Words* x, Words* out, size_t words) {
    each_word(words, [&](size_t i) { out[i] = dropped(x[i], i); });
}
static __global__ void add_to(const Words* x, const Words* y, Words* out, size_t words) {
    each_word(words, [&](size_t i) { out[i] = added(x[i], y[i]); });
}
static __global__ void copy_to(const Words* x, Words* out, size_t words) {
    each_word(words, [&](size_t i) { out[i] = x[i]; });
}
static __global__ void bias_dropout_add(const Words* x, const Words* b, size_t width, const Words* y, Words* out,
                                        size_t words) {
    each_word(words, [&](size_t i) { out[i] = added(dropped(added(x[i], b[i % width]), i), y[i]); });
}
// A step of a ring: the sum is kept and sent on.
static __global__ void add_and_send(const Words* x, const Words* y, Words* out, Words* sent, size_t words) {
    each_word(words, [&](size_t i) { out[i] = sent[i] = added(x[i], y[i]); });
}

// Adam in float32, as one kernel or as one per line of its rule.
template <class Each>
static __device__ float4 map(float4 a, float4 b, Each&& each) {
    return {each(a.x, b.x), each(a.y, b.y), each(a.z, b.z), each(a.w, b.w)};
}
static __device__ float4 first_moment(float4 m, float4 g) {
    return map(m, g, [](float m, float g) { return 0.9f * m + 0.1f * g; });
}
static __device__ float4 second_moment(float4 v, float4 g) {
    return map(v, g, [](float v, float g) { return 0.999f * v + 0.001f * g * g; });
}
static __device__ float4 direction(float4 m, float4 v) {
    return map(m, v, [](float m, float v) { return m / (sqrtf(fabsf(v)) + 1e-8f); });
}
static __device__ float4 moved(float4 p, float4 u) {
    return map(p, u, [](float p, float u) { return p - 1e-3f * u; });
}
static __global__ void adam_m(float4* m, const float4* g, size_t n) {
    each_word(n, [&](size_t i) { m[i] = first_moment(m[i], g[i]); });
}
static __global__ void adam_v(float4* v, const float4* g, size_t n) {
    each_word(n, [&](size_t i) { v[i] = second_moment(v[i], g[i]); });
}
static __global__ void adam_u(const float4* m, const float4* v, float4* u, size_t n) {
    each_word(n, [&](size_t i) { u[i] = direction(m[i], v[i]); });
}
static __global__ void adam_p(float4* p, const float4* u, size_t n) {
    each_word(n, [&](size_t i) { p[i] = moved(p[i], u[i]); });
}
static __global__ void adam(float4* p, float4* m, float4* v, const float4* g, size_t n) {
    each_word(n, [&](size_t i) {
        const float4 grad = g[i], one = first_moment(m[i], grad), two = second_moment(v[i], grad);
        m[i] = one, v[i] = two, p[i] = moved(p[i], direction(one, two));
    });
}

// Tensors of one size: each round takes the next stretch of its buffer, so that inputs come from memory and not from the cache.
struct Tensors {
    static constexpr size_t kBytes = 1ull << 30;
    uint8_t* buffers[6];
    size_t bytes = 0;
    Tensors() {
        for (int i = 0; i < 6; ++i) {
            CHECK(cudaMalloc(&buffers[i], kBytes));
            fill<<<1024, 256>>>(reinterpret_cast<bf16*>(buffers[i]), kBytes / 2, 40 + i);
        }
        CHECK(cudaDeviceSynchronize());
    }
    template <class T>
    T* at(int buffer, int round) const {
        return reinterpret_cast<T*>(buffers[buffer] + (round % (kBytes / bytes)) * bytes);
    }
};

template <class One, class Several>
static void compare(Run& run, cudaStream_t stream, const Tensors& tensors, const char* what, int kernels, int tensors_one,
                    int tensors_several, One&& one, Several&& several) {
    if (!run.left()) return;
    Row row("fused");
    const int count = tensors.bytes < (16u << 20) ? 60 : 24;
    const auto round = [&](int i) { i % 2 ? several(i) : one(i); };
    const auto took = rounds_us(stream, 2 * count, round, 300 + 8.0 * count * (kernels + 1), 4);
    std::vector<double> fused, apart;
    for (size_t i = 0; i < took.size(); ++i) (i % 2 ? apart : fused).push_back(took[i]);
    const Spread left = spread(fused), right = spread(apart);
    row.add("what", what).add("tensor_bytes", tensors.bytes).add("kernels", kernels).times("one", left).times("several", right);
    row.add("ratio", right.median / left.median);
    row.add("one_traffic_gbs", tensors_one * (tensors.bytes / left.median / 1e3));
    row.add("several_traffic_gbs", tensors_several * (tensors.bytes / right.median / 1e3));
    row.write(run);
}

int section_fused(Run& run) {
    cudaStream_t s;
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    Tensors t;
    gate(100e3, s);  // warm clocks
    constexpr size_t kWidth = 8192 / 8;  // words in a row of the bias
    for (int shift = 20; shift <= 28; ++shift) {
        t.bytes = size_t{1} << shift;
        const size_t n = t.bytes / sizeof(Words);
        const int blocks = static_cast<int>(std::min<size_t>(132 * 4, (n + 511) / 512));
        const auto w = [&](int buffer, int round) { return t.at<Words>(buffer, round); };
        const auto f = [&](int buffer, int round) { return t.at<float4>(buffer, round); };
        const auto* row = reinterpret_cast<const Words*>(t.buffers[5]);
        compare(
            run, s, t, "bias, dropout, residual", 3, 3, 7,
            [&](int i) { bias_dropout_add<<<blocks, 512, 0, s>>>(w(0, i), row, kWidth, w(1, i), w(2, i), n); },
            [&](int i) {
                bias<<<blocks, 512, 0, s>>>(w(0, i), row, kWidth, w(3, i), n);
                dropout<<<blocks, 512, 0, s>>>(w(3, i), w(4, i), n);
                add_to<<<blocks, 512, 0, s>>>(w(4, i), w(1, i), w(2, i), n);
            });
        compare(
            run, s, t, "add, send", 2, 4, 5,
            [&](int i) { add_and_send<<<blocks, 512, 0, s>>>(w(0, i), w(1, i), w(2, i), w(3, i), n); },
            [&](int i) {
                add_to<<<blocks, 512, 0, s>>>(w(0, i), w(1, i), w(2, i), n);
                copy_to<<<blocks, 512, 0, s>>>(w(2, i), w(3, i), n);
            });
        compare(
            run, s, t, "adam", 4, 7, 12, [&](int i) { adam<<<blocks, 512, 0, s>>>(f(0, i), f(1, i), f(2, i), f(3, i), n); },
            [&](int i) {
                adam_m<<<blocks, 512, 0, s>>>(f(1, i), f(3, i), n);
                adam_v<<<blocks, 512, 0, s>>>(f(2, i), f(3, i), n);
                adam_u<<<blocks, 512, 0, s>>>(f(1, i), f(2, i), f(4, i), n);
                adam_p<<<blocks, 512, 0, s>>>(f(0, i), f(4, i), n);
            });
        CHECK(cudaGetLastError());
    }
    return 0;
}
