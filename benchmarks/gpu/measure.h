// Rows of JSON, marks in streams and medians: what every section needs.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

#define CHECK(call) check((call), #call, __FILE__, __LINE__)

inline void check(cudaError_t error, const char* call, const char* file, int line) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, cudaGetErrorString(error));
    std::exit(1);
}

inline double wall_s() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

inline double host_us() {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What one run of a section was given: where rows go, and until when it may start new ones.
struct Run {
    std::FILE* rows;
    double until_s;
    std::string libraries;  // folder of cuBLAS
    int left_out = 0;
    // Whether the budget allows one more row; what it does not allow is counted, never silent.
    bool left() {
        if (wall_s() < until_s) return true;
        ++left_out;
        return false;
    }
};

struct Spread {
    size_t count = 0;
    double least = NAN, p10 = NAN, median = NAN, p90 = NAN, most = NAN, mean = NAN;
};

inline Spread spread(std::vector<double> values) {
    Spread out;
    out.count = values.size();
    if (values.empty()) return out;
    std::sort(values.begin(), values.end());
    const auto at = [&](double share) { return values[static_cast<size_t>(share * (values.size() - 1) + 0.5)]; };
    double sum = 0;
    for (double value : values) sum += value;
    out.least = values.front(), out.most = values.back(), out.mean = sum / values.size();
    out.p10 = at(0.1), out.p90 = at(0.9);
    const size_t half = values.size() / 2;
    out.median = values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
    return out;
}

// One line of JSON; its times of day cover what was measured between making and writing it.
class Row {
  public:
    explicit Row(const char* section) : from_s(wall_s()) { add("section", section); }
    template <class T>
    Row& add(const std::string& key, const T& value) {
        char text[64];
        if constexpr (std::is_same_v<T, bool>)
            return raw(key, value ? "true" : "false");
        else if constexpr (std::is_integral_v<T>)
            std::snprintf(text, sizeof text, "%lld", static_cast<long long>(value));
        else if constexpr (std::is_floating_point_v<T>)
            std::snprintf(text, sizeof text, std::isfinite(value) ? "%.7g" : "null", static_cast<double>(value));
        else
            return raw(key, "\"" + escaped(value) + "\"");
        return raw(key, text);
    }
    // Key "product" gives product_us (the median), product_p10_us and so on.
    Row& times(const std::string& key, const Spread& given) {
        add(key + "_us", given.median).add(key + "_p10_us", given.p10).add(key + "_p90_us", given.p90);
        add(key + "_least_us", given.least).add(key + "_most_us", given.most);
        return add(key + "_mean_us", given.mean).add(key + "_samples", given.count);
    }
    void write(Run& run) {
        char text[96];
        std::snprintf(text, sizeof text, ", \"from_s\": %.3f, \"to_s\": %.3f}\n", from_s, wall_s());
        std::fputs(("{" + body + text).c_str(), run.rows);
        std::fflush(run.rows);
    }

  private:
    double from_s;
    std::string body;
    Row& raw(const std::string& key, const std::string& value) {
        body += (body.empty() ? "\"" : ", \"") + key + "\": " + value;
        return *this;
    }
    static std::string escaped(const std::string& text) {
        std::string out;
        for (char letter : text) {
            if (letter == '"' || letter == '\\') out += '\\';
            if (static_cast<unsigned char>(letter) >= 32) out += letter;
        }
        return out;
    }
};

// Events of one stream in order. They are made once and used again: making one costs microseconds.
class Marks {
  public:
    void clear() { used = 0; }
    size_t size() const { return used; }
    cudaEvent_t mark(cudaStream_t stream) {
        if (used == events.size()) {
            events.emplace_back();
            CHECK(cudaEventCreate(&events.back()));
        }
        CHECK(cudaEventRecord(events[used], stream));
        return events[used++];
    }
    std::vector<double> since_us(cudaEvent_t origin) const {
        std::vector<double> out(used);
        for (size_t i = 0; i < used; ++i) {
            float ms = 0;
            CHECK(cudaEventElapsedTime(&ms, origin, events[i]));
            out[i] = ms * 1000.0;
        }
        return out;
    }

  private:
    std::vector<cudaEvent_t> events;
    size_t used = 0;
};

inline std::vector<double> steps(const std::vector<double>& at) {
    std::vector<double> out;
    for (size_t i = 1; i < at.size(); ++i) out.push_back(at[i] - at[i - 1]);
    return out;
}

// Moments (us) at which one side began and finished each of its rounds.
struct Track {
    std::vector<double> at;
    double first() const { return at.front(); }
    double last() const { return at.back(); }
    // Rounds that lie wholly between two moments (us).
    Spread inside(double from, double to) const {
        std::vector<double> out;
        for (size_t i = 1; i < at.size(); ++i)
            if (at[i - 1] >= from && at[i] <= to) out.push_back(at[i] - at[i - 1]);
        return spread(out);
    }
};

int section_waves(Run& run);
int section_kernels(Run& run);
int section_beside(Run& run);
int section_bandwidth(Run& run);
int section_launches(Run& run);
int section_tiles(Run& run);
int section_fused(Run& run);
