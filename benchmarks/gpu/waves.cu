// How long a product takes by its rows (waves of tiles), what cutting it costs, and which kernel the library chose.
#include <cuda.h>

#include "product.cuh"

static double guess_us(Shape shape) { return shape.flop() / 5e8 + 8; }

static int samples(Shape shape, double about_us, int least, int most) {
    return std::clamp(static_cast<int>(about_us / guess_us(shape)), least, most);
}

static void by_rows(Run& run, const Product& product, const Operands& operands, int width, int pass) {
    std::vector<int> rows;
    for (int m = 128; m <= 4096; m += 128) rows.push_back(m);
    for (int m = 4608; m <= 16384; m += 512) rows.push_back(m);
    if (pass % 2) std::reverse(rows.begin(), rows.end());  // a drift with temperature shows as a difference of passes
    for (int m : rows) {
        if (!run.left()) continue;
        const Shape shape{m, width, width};
        Row row("waves");
        const int count = samples(shape, 12e3, 9, 60);
        const Spread took =
            spread(rounds_us(product.stream, count, [&](int i) { operands.whole(product, shape, i); }, 200 + 12.0 * count));
        add(row, shape).add("pass", pass).times("product", took).add("rate_tflops", shape.flop() / took.median / 1e6);
        row.write(run);
    }
}

// The cut product and the whole one in turns, so that both see the same clocks.
static void cuts(Run& run, const Product& product, const Operands& operands, Shape shape) {
    for (int pieces : {2, 4, 8, 16})
        for (char along : {'m', 'n', 'k'}) {
            if (!run.left()) continue;
            Row row("cuts");
            const int count = samples(shape, 10e3, 7, 16);
            const auto round = [&](int i) {
                if (i % 2)
                    operands.whole(product, shape, i / 2);
                else
                    operands.cut(product, shape, along, pieces, i / 2);
            };
            const auto took = rounds_us(product.stream, 2 * count, round, 200 + 8.0 * count * (pieces + 3), 4);
            std::vector<double> cut, whole;
            for (size_t i = 0; i < took.size(); ++i) (i % 2 ? whole : cut).push_back(took[i]);
            const Spread parts = spread(cut), one = spread(whole);
            add(row, shape)
                .add("along", std::string(1, along))
                .add("pieces", pieces)
                .times("pieces", parts)
                .times("whole", one);
            row.add("ratio", parts.median / one.median);
            row.write(run);
        }
}

int section_waves(Run& run) {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const Product product(run, stream);
    const Operands operands(16384, 8192, 8192);
    rounds_us(stream, 40, [&](int i) { operands.whole(product, {8192, 8192, 8192}, i); }, 500);  // warm clocks
    for (int width : {4096, 8192}) by_rows(run, product, operands, width, 0);
    for (const Shape shape : kShapes) cuts(run, product, operands, shape);
    for (int m : {4096, 16384})
        for (const Shape shape : {Shape{m, 8192, 8192}, {m, 8192, 1024}, {m, 8192, 3584}}) cuts(run, product, operands, shape);
    for (int pass : {1, 2})
        for (int width : {4096, 8192}) by_rows(run, product, operands, width, pass);
    return 0;
}

// The kernel behind a product, read from a captured graph: its name tells the tile, its grid tells the waves.
static void kernel_of(Run& run, const Product& product, const Operands& operands, Shape shape, int target, void* driver) {
    using Parameters = CUresult (*)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS_v2*);
    const auto parameters = symbol<Parameters>(driver, "cuGraphKernelNodeGetParams_v2");
    const auto of_kernel = symbol<CUresult (*)(CUfunction*, CUkernel)>(driver, "cuKernelGetFunction");
    const auto kernel_name = symbol<CUresult (*)(const char**, CUkernel)>(driver, "cuKernelGetName");
    const auto function_name = symbol<CUresult (*)(const char**, CUfunction)>(driver, "cuFuncGetName");
    const auto attribute = symbol<CUresult (*)(int*, CUfunction_attribute, CUfunction)>(driver, "cuFuncGetAttribute");
    cudaGraph_t graph;
    operands.whole(product, shape, 0);
    CHECK(cudaStreamSynchronize(product.stream));
    CHECK(cudaStreamBeginCapture(product.stream, cudaStreamCaptureModeRelaxed));
    operands.whole(product, shape, 0);
    CHECK(cudaStreamEndCapture(product.stream, &graph));
    size_t count = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &count));
    std::vector<cudaGraphNode_t> nodes(count);
    CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
    int number = 0;
    for (cudaGraphNode_t node : nodes) {
        cudaGraphNodeType type;
        CHECK(cudaGraphNodeGetType(node, &type));
        CUDA_KERNEL_NODE_PARAMS_v2 given = {};
        if (type != cudaGraphNodeTypeKernel || parameters(node, &given) != CUDA_SUCCESS) continue;
        const char* text = "";
        CUfunction function = given.func;
        if (given.kern)
            kernel_name(&text, given.kern), of_kernel(&function, given.kern);
        else
            function_name(&text, function);
        int registers = 0;
        if (function) attribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function);
        Row row("kernels");
        add(row, shape).add("sm_target", target).add("kernel", std::string(text ? text : "")).add("kernel_number", number++);
        row.add("blocks_x", given.gridDimX).add("blocks_y", given.gridDimY).add("blocks_z", given.gridDimZ);
        row.add("threads", given.blockDimX * given.blockDimY * given.blockDimZ).add("registers", registers);
        row.add("shared_bytes", given.sharedMemBytes);
        row.write(run);
    }
    CHECK(cudaGraphDestroy(graph));
}

int section_kernels(Run& run) {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const Product product(run, stream);
    const Operands operands(16384, 8192, 8192);
    void* driver = library("libcuda.so.1");
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    int runtime = 0, kernel_driver = 0, megahertz = 0;
    CHECK(cudaRuntimeGetVersion(&runtime));
    CHECK(cudaDriverGetVersion(&kernel_driver));
    CHECK(cudaDeviceGetAttribute(&megahertz, cudaDevAttrClockRate, 0));
    Row row("device");
    row.add("gpu", std::string(device.name)).add("sms", device.multiProcessorCount).add("l2_bytes", device.l2CacheSize);
    row.add("memory_bytes", device.totalGlobalMem).add("copy_engines", device.asyncEngineCount).add("clock_khz", megahertz);
    row.add("shared_bytes_sm", device.sharedMemPerMultiprocessor)
        .add("cuda_runtime", runtime)
        .add("cuda_driver", kernel_driver);
    row.add("cublas", product.version());
    row.write(run);
    for (int width : {4096, 8192})
        for (int m = 128; m <= 16384; m += m < 4096 ? 128 : 512)
            if (run.left()) kernel_of(run, product, operands, {m, width, width}, 0, driver);
    for (const Shape shape : kShapes) {
        for (int target : {0, 124, 116, 108, 100}) {
            product.target(target);
            if (run.left()) kernel_of(run, product, operands, shape, target, driver);
        }
        product.target(0);
        for (int pieces : {2, 4, 8, 16}) {
            if (!run.left()) continue;
            kernel_of(run, product, operands, {shape.m / pieces, shape.n, shape.k}, 0, driver);
            kernel_of(run, product, operands, {shape.m, shape.n / pieces, shape.k}, 0, driver);
            kernel_of(run, product, operands, {shape.m, shape.n, shape.k / pieces}, 0, driver);
        }
    }
    return 0;
}
