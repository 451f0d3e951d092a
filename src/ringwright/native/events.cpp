// Events of a line of XLA's profiler, as columns. Semantics are those of twin_events.py, to the bit.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace nb = nanobind;

namespace {

struct Cursor {
    const uint8_t* data;
    size_t at, end;

    bool varint(uint64_t& value) {
        value = 0;
        for (int byte = 0; byte < 10 && at < end; ++byte) {
            const uint8_t next = data[at++];
            value |= static_cast<uint64_t>(next & 0x7F) << (7 * byte);
            if (next < 0x80) return true;
        }
        return false;
    }
};

struct Field {
    uint64_t number;
    int kind;
    uint64_t value;  // of a varint, or of eight bytes
    size_t begin, end, sized;  // of what has a length, and where its length stands
};

bool field(Cursor& cursor, Field& out) {
    uint64_t tag;
    if (!cursor.varint(tag) || tag >> 3 == 0) return false;
    out.number = tag >> 3;
    out.kind = static_cast<int>(tag & 7);
    uint64_t size;
    if (out.kind == 0) return cursor.varint(out.value);
    if (out.kind == 2) {
        out.sized = cursor.at;
        if (!cursor.varint(size)) return false;
    } else if (out.kind == 1 || out.kind == 5) {
        size = out.kind == 1 ? 8 : 4;
    } else {
        return false;
    }
    if (size > cursor.end - cursor.at) return false;
    out.begin = cursor.at;
    out.end = cursor.at += size;
    if (out.kind == 1) std::memcpy(&out.value, cursor.data + out.begin, 8);
    return true;
}

struct Stat {
    uint64_t name = 0;
    int64_t value = 0;
    uint8_t form = 0;
};

bool stat(Cursor cursor, Stat& out) {
    Field held;
    while (cursor.at < cursor.end) {
        if (!field(cursor, held)) return false;
        const bool is_number = held.kind == 0 || (held.kind == 1 && held.number == 2);
        if (held.number == 1 && held.kind == 0) {
            out.name = held.value;
        } else if (is_number && (held.number == 2 || held.number == 3 || held.number == 4 || held.number == 7)) {
            if ((held.number == 2) != (held.kind == 1)) continue;
            out.value = static_cast<int64_t>(held.value);
            out.form = static_cast<uint8_t>(held.number);
        } else if (held.kind == 2 && (held.number == 5 || held.number == 6 || held.number == 8)) {
            out.value = static_cast<int64_t>(held.sized);
            out.form = static_cast<uint8_t>(held.number);
        }
    }
    return true;
}

struct Columns {
    std::vector<int64_t> name, start_ps, duration_ps, value;
    std::vector<uint8_t> is_count, form;
    bool is_whole = true;
};

bool event(Cursor cursor, const std::vector<uint64_t>& wanted, Columns& out) {
    const size_t row = out.value.size();
    int64_t name = 0, start = 0, duration = 0;
    uint8_t is_count = 0;
    out.value.resize(row + wanted.size(), 0);
    out.form.resize(row + wanted.size(), 0);
    Field held;
    bool is_whole = true;
    while (is_whole && cursor.at < cursor.end) {
        is_whole = field(cursor, held);
        if (!is_whole) break;
        if (held.kind == 0) {
            if (held.number == 1) name = static_cast<int64_t>(held.value);
            else if (held.number == 2) start = static_cast<int64_t>(held.value);
            else if (held.number == 3) duration = static_cast<int64_t>(held.value);
            else if (held.number == 5) is_count = 1;
        } else if (held.kind == 2 && held.number == 4) {
            Stat said;
            is_whole = stat(Cursor{cursor.data, held.begin, held.end}, said);
            for (size_t each = 0; is_whole && each < wanted.size(); ++each) {
                if (wanted[each] != said.name) continue;
                out.value[row + each] = said.value;
                out.form[row + each] = said.form;
            }
        }
    }
    if (!is_whole) {
        out.value.resize(row);
        out.form.resize(row);
        return false;
    }
    out.name.push_back(name);
    out.start_ps.push_back(start);
    out.duration_ps.push_back(duration);
    out.is_count.push_back(is_count);
    return true;
}

Columns read(const uint8_t* data, size_t size, const std::vector<uint64_t>& wanted) {
    Columns out;
    Cursor cursor{data, 0, size};
    Field held;
    while (out.is_whole && cursor.at < cursor.end) {
        out.is_whole = field(cursor, held);
        if (out.is_whole && held.kind == 2 && held.number == 4)
            out.is_whole = event(Cursor{data, held.begin, held.end}, wanted, out);
    }
    return out;
}

template <class T>
nb::object to_numpy(std::vector<T>&& values) {
    values.reserve(1);  // an empty array still needs an address
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* pointer) noexcept { delete static_cast<std::vector<T>*>(pointer); });
    const size_t shape[] = {kept->size()};
    return nb::cast(nb::ndarray<nb::numpy, T>(kept->data(), 1, shape, owner));
}

nb::dict events(nb::bytes message, const std::vector<uint64_t>& wanted) {
    Columns found;
    const auto* data = reinterpret_cast<const uint8_t*>(message.c_str());
    const size_t size = message.size();
    {
        nb::gil_scoped_release unlocked;
        found = read(data, size, wanted);
    }
    nb::dict out;
    out["name"] = to_numpy(std::move(found.name));
    out["start_ps"] = to_numpy(std::move(found.start_ps));
    out["duration_ps"] = to_numpy(std::move(found.duration_ps));
    out["is_count"] = to_numpy(std::move(found.is_count));
    out["value"] = to_numpy(std::move(found.value));
    out["form"] = to_numpy(std::move(found.form));
    out["is_whole"] = found.is_whole;
    return out;
}

}  // namespace

NB_MODULE(_events, module) {
    module.doc() = "The hot loop of the reader of XLA's profiler; ringwright.native.twin_events says what it means.";
    module.def("events", &events, nb::arg("message"), nb::arg("wanted"));
}
