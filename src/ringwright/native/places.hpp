// Places (node times slot) numbered from 0 in the order of their first use: few are used of the many there could be.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine_events.hpp"

namespace ringwright {

struct Places {
    Places(const Span<int64_t>& read, const Span<int64_t>& written) {
        int64_t most = -1;
        for (size_t i = 0; i < read.size; ++i) most = std::max({most, read[i], written[i]});
        reads.resize(read.size);
        writes.resize(read.size);
        if (most < static_cast<int64_t>(4 * read.size + 1024)) {
            direct(read, written, static_cast<size_t>(most + 1));
        } else {
            hashed(read, written);
        }
    }

    std::vector<int32_t> reads, writes;
    size_t count = 0;

private:
    void direct(const Span<int64_t>& read, const Span<int64_t>& written, size_t size) {
        std::vector<int32_t> number(size, -1);
        const auto give = [&](int64_t place) {
            if (number[place] < 0) number[place] = static_cast<int32_t>(count++);
            return number[place];
        };
        for (size_t i = 0; i < read.size; ++i) {
            reads[i] = give(read[i]);
            writes[i] = give(written[i]);
        }
    }

    void hashed(const Span<int64_t>& read, const Span<int64_t>& written) {
        size_t size = 1024;
        while (size < 4 * read.size) size *= 2;
        std::vector<int64_t> keys(size, -1);
        std::vector<int32_t> numbers(size);
        const auto give = [&](int64_t place) {
            uint64_t at = (static_cast<uint64_t>(place) * 0x9E3779B97F4A7C15u >> 20) & (size - 1);
            while (keys[at] >= 0 && keys[at] != place) at = (at + 1) & (size - 1);
            if (keys[at] < 0) {
                keys[at] = place;
                numbers[at] = static_cast<int32_t>(count++);
            }
            return numbers[at];
        };
        for (size_t i = 0; i < read.size; ++i) {
            reads[i] = give(read[i]);
            writes[i] = give(written[i]);
        }
    }
};

}  // namespace ringwright
