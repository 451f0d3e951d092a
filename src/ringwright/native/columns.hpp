// Arrays between Python and the loops: views of those that come, owners of those that go.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>
#include <vector>

#include "checks.hpp"

namespace ringwright {

namespace nb = nanobind;

template <class T>
using Input = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
Span<T> view(const Input<T>& column) {
    return {column.data(), column.shape(0)};
}

template <class T>
nb::object to_numpy(std::vector<T>&& values) {
    values.reserve(1);  // an empty array still needs an address
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* pointer) noexcept { delete static_cast<std::vector<T>*>(pointer); });
    const size_t shape[] = {kept->size()};
    return nb::cast(nb::ndarray<nb::numpy, T>(kept->data(), 1, shape, owner));
}

// The columns of a laid-out job or network; it keeps them alive, for they are its own.
class Columns {
public:
    explicit Columns(nb::handle owner) : owner_(owner) {}

    template <class T>
    void read(Span<T>& span, const char* name) {
        span = view(array<Input<T>>(name));
    }

    void read_gates(Span<int32_t>& span, const char* name) {
        const auto rows = array<nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>>(name);
        require(rows.shape(1) == 4, "gates: rows of four");
        span = {rows.data(), rows.size()};
    }

private:
    // No conversion: a copy made here would be gone before it is read.
    template <class Array>
    Array array(const char* name) {
        Array found;
        const nb::object value = owner_.attr(name);
        if (!nb::try_cast(value, found, false)) {
            throw nb::type_error((std::string(name) + ": another type, number of dimensions or not contiguous").c_str());
        }
        kept_.push_back(value);
        return found;
    }

    nb::handle owner_;
    std::vector<nb::object> kept_;
};

}  // namespace ringwright
