// What the loops trust and arrays from outside must keep: raise std::invalid_argument that names what is wrong.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "engine_events.hpp"

namespace ringwright {

inline void require(bool good, const char* what) {
    if (!good) throw std::invalid_argument(what);
}

// Starts must rise from 0 to the length of what they cut.
inline void require_cuts(const Span<int64_t>& starts, size_t rows, size_t total, const char* name) {
    bool good = starts.size == rows + 1 && starts[0] == 0 && static_cast<size_t>(starts[rows]) == total;
    for (size_t i = 0; good && i < rows; ++i) good = starts[i] <= starts[i + 1];
    require(good, name);
}

// Numbers must name something.
template <class T>
void require_below(const Span<T>& numbers, size_t limit, const char* name) {
    for (size_t i = 0; i < numbers.size; ++i) {
        if (numbers[i] < 0 || static_cast<size_t>(numbers[i]) >= limit) throw std::invalid_argument(name);
    }
}

// The same where -1 stands for none.
inline void require_below_or_none(const Span<int32_t>& numbers, int64_t limit, const char* name) {
    for (size_t i = 0; i < numbers.size; ++i) {
        if (numbers[i] < -1 || numbers[i] >= limit) throw std::invalid_argument(name);
    }
}

inline void require_times(const Span<int64_t>& values, const char* name) {
    for (size_t i = 0; i < values.size; ++i) require(values[i] >= 0 && values[i] < kForever, name);
}

// Time a byte takes: none is negative or no number; a dead link's is infinite.
inline void require_ps_per_byte(const Span<double>& values, const char* name) {
    for (size_t i = 0; i < values.size; ++i) require(values[i] >= 0, name);
}

inline void require_amounts(const Span<double>& values, const char* name) {
    for (size_t i = 0; i < values.size; ++i) require(values[i] >= 0 && std::isfinite(values[i]), name);
}

}  // namespace ringwright
