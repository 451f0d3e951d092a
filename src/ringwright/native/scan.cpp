// Python bindings of the log scanner and the record joiner. Semantics are those of twin.py, to the bit.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <new>

#include "join.hpp"
#include "scan.hpp"

namespace nb = nanobind;
using namespace ringwright;

namespace {

template <class T>
nb::object to_numpy(std::vector<T>&& values, size_t columns = 0) {
    values.reserve(1);  // an empty array still needs an address
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* pointer) noexcept { delete static_cast<std::vector<T>*>(pointer); });
    const size_t rows = columns ? kept->size() / columns : kept->size();
    const size_t shape[] = {rows, columns};
    return nb::cast(nb::ndarray<nb::numpy, T>(kept->data(), columns ? 2 : 1, shape, owner));
}

// Any contiguous bytes-like object; the view is released when it goes out of scope.
class BytesView {
public:
    explicit BytesView(nb::handle source) {
        if (PyObject_GetBuffer(source.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
    }
    ~BytesView() { PyBuffer_Release(&view_); }
    BytesView(const BytesView&) = delete;
    BytesView& operator=(const BytesView&) = delete;

    const char* data() const { return static_cast<const char*>(view_.buf); }
    size_t size() const { return static_cast<size_t>(view_.len); }

private:
    Py_buffer view_{};
};

void make_scanner(Scanner* place, const std::vector<nb::bytes>& needles) {
    std::vector<std::string> words;
    for (const nb::bytes& needle : needles) words.emplace_back(needle.c_str(), needle.size());
    new (place) Scanner(std::move(words));
}

nb::dict scan_columns(Columns&& found) {
    nb::dict out;
    out["handle"] = to_numpy(std::move(found.handle));
    out["op"] = to_numpy(std::move(found.op));
    out["op_count"] = to_numpy(std::move(found.op_count));
    out["count"] = to_numpy(std::move(found.count));
    out["datatype"] = to_numpy(std::move(found.datatype));
    out["redop"] = to_numpy(std::move(found.redop));
    out["root"] = to_numpy(std::move(found.root));
    out["global_rank"] = to_numpy(std::move(found.global_rank));
    out["launch_rank"] = to_numpy(std::move(found.launch_rank));
    out["time_s"] = to_numpy(std::move(found.time_s));
    out["line"] = to_numpy(std::move(found.line));
    out["stream"] = to_numpy(std::move(found.stream));
    out["inplace"] = to_numpy(std::move(found.inplace));
    out["careful"] = to_numpy(std::move(found.careful), 3);
    out["repaired"] = to_numpy(std::move(found.repaired), 3);
    out["lines"] = found.lines;
    out["blank"] = found.blank;
    out["other"] = found.other;
    return out;
}

nb::dict scan(Scanner& scanner, nb::handle data, int64_t first_line) {
    const BytesView view(data);
    Columns found;
    {
        nb::gil_scoped_release unlocked;
        found = scanner.scan(view.data(), view.size(), first_line);
    }
    return scan_columns(std::move(found));
}

// The scanner's lock is waited for without the interpreter's: another thread may be in the middle of a scan.
nb::list handles(const Scanner& scanner, size_t first) {
    std::vector<Handle> found;
    {
        nb::gil_scoped_release unlocked;
        found = scanner.handles(first);
    }
    nb::list out;
    for (const Handle& handle : found) {
        out.append(nb::make_tuple(handle.prefix, handle.comm, handle.nranks));  // clean prefixes are ASCII
    }
    return out;
}

template <class T>
using Input = nb::ndarray<const T, nb::ndim<1>, nb::device::cpu>;

template <class... Columns>
void require_rows(size_t rows, const Columns&... columns) {
    if (((columns.shape(0) != rows) || ...)) throw std::invalid_argument("the columns have different lengths");
}

template <class Op>
nb::object add(Joiner& joiner, Input<int32_t> group, Input<int32_t> member, Input<Op> op, Input<uint64_t> op_count,
               Input<uint64_t> count, Input<int16_t> datatype, Input<int16_t> redop, Input<int32_t> root) {
    require_rows(group.shape(0), member, op, op_count, count, datatype, redop, root);
    std::vector<int64_t> ids;
    {
        nb::gil_scoped_release unlocked;
        ids = joiner.add(
            group.shape(0),
            [&](size_t i) { return Signature{group(i), op(i), count(i), datatype(i), redop(i), root(i)}; },
            [&](size_t i) { return member(i); }, [&](size_t i) { return op_count(i); });
    }
    return to_numpy(std::move(ids));
}

nb::dict to_dict(JoinTables&& tables) {
    nb::dict signatures, entries, member_bits, totals, out;
    signatures["group"] = to_numpy(std::move(tables.group));
    signatures["op"] = to_numpy(std::move(tables.op));
    signatures["count"] = to_numpy(std::move(tables.count));
    signatures["datatype"] = to_numpy(std::move(tables.datatype));
    signatures["redop"] = to_numpy(std::move(tables.redop));
    signatures["root"] = to_numpy(std::move(tables.root));
    entries["signature"] = to_numpy(std::move(tables.entry_signature));
    entries["op_count"] = to_numpy(std::move(tables.op_count));
    entries["occurrence"] = to_numpy(std::move(tables.occurrence));
    entries["members_seen"] = to_numpy(std::move(tables.members_seen));
    member_bits["words"] = to_numpy(std::move(tables.words));
    member_bits["offsets"] = to_numpy(std::move(tables.offsets));
    totals["signature"] = to_numpy(std::move(tables.total_signature));
    totals["member"] = to_numpy(std::move(tables.member));
    totals["records"] = to_numpy(std::move(tables.records));
    totals["first_op_count"] = to_numpy(std::move(tables.first_op_count));
    totals["last_op_count"] = to_numpy(std::move(tables.last_op_count));
    out["signatures"] = signatures;
    out["entries"] = entries;
    out["member_bits"] = member_bits;
    out["totals"] = totals;
    return out;
}

// Copied without the interpreter lock: a thread that held it while waiting for the joiner could wait for ever.
nb::dict export_tables(const Joiner& joiner) {
    JoinTables tables;
    {
        nb::gil_scoped_release unlocked;
        tables = joiner.tables();
    }
    return to_dict(std::move(tables));
}

template <class Op>
void bind_add(nb::class_<Joiner>& joiner) {
    joiner.def("add", &add<Op>, nb::arg("group").noconvert(), nb::arg("member").noconvert(), nb::arg("op").noconvert(),
               nb::arg("op_count").noconvert(), nb::arg("count").noconvert(), nb::arg("datatype").noconvert(),
               nb::arg("redop").noconvert(), nb::arg("root").noconvert());
}

}  // namespace

NB_MODULE(_scan, module) {
    module.doc() = "The hot loops of the NCCL log reader; ringwright.native.twin says what they mean.";

    nb::class_<Scanner>(module, "Scanner")
        .def("__init__", &make_scanner, nb::arg("needles"))
        .def("scan", &scan, nb::arg("data"), nb::arg("first_line"))
        .def("handles", &handles, nb::arg("first") = 0)
        .def("ops", &Scanner::ops, nb::call_guard<nb::gil_scoped_release>());

    nb::class_<Joiner> joiner(module, "Joiner");
    joiner.def(nb::init<>());
    bind_add<int32_t>(joiner);
    bind_add<uint8_t>(joiner);
    joiner.def("export", &export_tables);
}
