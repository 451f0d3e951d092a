// The yardstick of the event engine: the shortest loop one would write by hand for one laid-out program, without faults,
// shared capacities, stuck messages or checks. Reads the columns that bench_engines.py writes, prints time, end and events.
#include <algorithm>
#include <ctime>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

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

struct Event {
    int64_t time;
    int32_t message, hop;
    bool operator<(const Event& other) const { return time != other.time ? time < other.time : message < other.message; }
};

int main(int argc, char** argv) {
    const std::string folder = argv[1];
    const int rounds = argc > 2 ? std::atoi(argv[2]) : 1;
    const auto hop_starts = column<int64_t>(folder, "hop_starts"), next_starts = column<int64_t>(folder, "next_starts");
    const auto hops = column<int32_t>(folder, "hops"), nexts = column<int32_t>(folder, "nexts");
    const auto waits = column<int32_t>(folder, "waits");
    const auto size = column<int64_t>(folder, "size_bytes"), latency = column<int64_t>(folder, "latency");
    const auto pace = column<double>(folder, "pace");
    const size_t n = waits.size();
    constexpr int64_t kRing = 1024;
    for (int round = 0; round < rounds; ++round) {
        const std::clock_t begin_clock = std::clock();
        std::vector<int64_t> tail(n, 0), free(pace.size(), 0);
        std::vector<int32_t> left(waits), done;
        std::vector<std::vector<Event>> ring(kRing);
        const double hop_time = static_cast<double>(size[0]) * pace[hops[0]] + static_cast<double>(latency[hops[0]]);
        const int64_t width = std::max<int64_t>(1, static_cast<int64_t>(hop_time / 64));
        int64_t pending = 0, events = 0, last = 0;
        const auto push = [&](Event event) {
            ring[(event.time / width) % kRing].push_back(event);
            ++pending;
        };
        for (size_t m = 0; m < n; ++m) {
            if (left[m] == 0) push({0, static_cast<int32_t>(m), 0});
        }
        std::vector<Event> bucket;
        for (int64_t slot = 0; pending > 0; ++slot) {
            auto& here = ring[slot % kRing];
            while (!here.empty()) {
                bucket.clear();
                bucket.swap(here);
                if (!std::is_sorted(bucket.begin(), bucket.end())) std::sort(bucket.begin(), bucket.end());
                for (size_t at = 0; at < bucket.size(); ++at) {
                    const Event event = bucket[at];
                    if (event.time / width != slot) {  // a later turn of the ring
                        here.push_back(event);
                        continue;
                    }
                    --pending;
                    ++events;
                    const int32_t m = event.message;
                    const int64_t place = hop_starts[m] + event.hop;
                    const int32_t r = hops[place];
                    const int64_t begin = std::max(event.time, free[r]);
                    const int64_t stop = begin + static_cast<int64_t>(std::ceil(static_cast<double>(size[m]) * pace[r]));
                    free[r] = stop;
                    tail[m] = std::max(stop, tail[m]) + latency[r];
                    if (place + 1 < hop_starts[m + 1]) {
                        push({begin + latency[r], m, event.hop + 1});
                        continue;
                    }
                    last = std::max(last, tail[m]);
                    done.push_back(m);
                    while (!done.empty()) {
                        const int32_t ended = done.back();
                        done.pop_back();
                        for (int64_t i = next_starts[ended]; i < next_starts[ended + 1]; ++i) {
                            const int32_t next = nexts[i];
                            tail[next] = std::max(tail[next], tail[ended]);
                            if (--left[next]) continue;
                            if (static_cast<size_t>(next) >= size.size()) {
                                done.push_back(next);
                            } else {
                                push({tail[next], next, 0});
                            }
                        }
                    }
                }
                bool later = true;  // only events of later turns are left
                for (const Event& event : here) later = later && event.time / width != slot;
                if (later) break;
            }
        }
        const double took = static_cast<double>(std::clock() - begin_clock) / CLOCKS_PER_SEC;
        std::printf("%.6f %lld %lld\n", took, static_cast<long long>(last), static_cast<long long>(events));
    }
}
