// One section of the measurement: overlap SECTION ROWS SECONDS FOLDER-OF-CUBLAS; rows of JSON are appended as they come.
#include <cstring>

#include "measure.h"

int main(int argc, char** argv) {
    struct Section {
        const char* name;
        int (*run)(Run&);
    };
    constexpr Section sections[] = {
        {"kernels", section_kernels},   {"waves", section_waves},         {"beside", section_beside}, {"tiles", section_tiles},
        {"launches", section_launches}, {"bandwidth", section_bandwidth}, {"fused", section_fused}};
    if (argc != 5) {
        std::fprintf(stderr, "overlap SECTION ROWS SECONDS FOLDER-OF-CUBLAS\n");
        return 2;
    }
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);  // streams that share a queue would wait for each other
    for (const Section& section : sections) {
        if (std::strcmp(section.name, argv[1])) continue;
        Run run{std::fopen(argv[2], "a"), wall_s() + std::atof(argv[3]), argv[4]};
        if (!run.rows) {
            std::perror(argv[2]);
            return 2;
        }
        CHECK(cudaSetDevice(0));
        CHECK(cudaFree(nullptr));
        const double begin = wall_s();
        const int status = section.run(run);
        CHECK(cudaDeviceSynchronize());
        Row row("sections");
        row.add("name", section.name).add("took_s", wall_s() - begin).add("rows_left_out", run.left_out);
        row.write(run);
        std::fclose(run.rows);
        return status;
    }
    std::fprintf(stderr, "no section %s\n", argv[1]);
    return 2;
}
