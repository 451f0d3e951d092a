// The event engine's own loop on the same columns as bucket_loop.cpp, outside Python, so that instructions can be counted.
#include <ctime>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "../src/ringwright/native/engine_events.hpp"

template <class T>
static std::vector<T> column(const std::string& folder, const char* name) {
    std::FILE* file = std::fopen((folder + "/" + name).c_str(), "rb");
    if (!file) return {};
    std::fseek(file, 0, SEEK_END);
    std::vector<T> out(static_cast<size_t>(std::ftell(file)) / sizeof(T));
    std::rewind(file);
    if (std::fread(out.data(), sizeof(T), out.size(), file) != out.size()) out.clear();
    std::fclose(file);
    return out;
}

int main(int argc, char** argv) {
    using namespace ringwright;
    const std::string folder = argv[1];
    const int rounds = argc > 2 ? std::atoi(argv[2]) : 1;
    const auto hop_starts = column<int64_t>(folder, "hop_starts"), next_starts = column<int64_t>(folder, "next_starts");
    const auto hops = column<int32_t>(folder, "hops"), nexts = column<int32_t>(folder, "nexts");
    const auto waits = column<int32_t>(folder, "waits");
    const auto size = column<int64_t>(folder, "size_bytes"), latency = column<int64_t>(folder, "latency");
    const auto pace = column<double>(folder, "pace");
    const std::vector<int64_t> delay(size.size(), 0);
    const std::vector<uint8_t> whole(pace.size(), 0), holds(pace.size(), 0);
    const auto span = [](const auto& data) {
        return Span<typename std::decay_t<decltype(data)>::value_type>{data.data(), data.size()};
    };
    const Flat flat{span(hop_starts), span(hops), span(next_starts), span(nexts), span(waits), span(size), span(delay), {}, {}, {}};
    const Resources resources{span(pace), span(latency), span(whole), span(holds), {}, {}, {}, {}, {}, {}};
    for (int round = 0; round < rounds; ++round) {
        const std::clock_t begin = std::clock();
        EventLoop loop(flat, resources);
        loop.run();
        const double took = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
        int64_t last = 0;
        for (size_t i = 0; i < size.size(); ++i) last = std::max(last, loop.end[i]);
        std::printf("%.6f %lld %lld\n", took, static_cast<long long>(last), static_cast<long long>(hops.size()));
    }
}
