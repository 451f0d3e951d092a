// Python binding of the packet loop; engines/packets/loop.py says what it means.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "checks.hpp"
#include "columns.hpp"
#include "packet_loop.hpp"

namespace nb = nanobind;
using namespace ringwright;

namespace {

// A table of changes: ports and times (sorted by port, then time), and a value or two.
struct ChangeTable {
    Span<int64_t> port, time;
    Span<double> value, other;
};

struct Given {
    Span<double> byte_ps;
    Span<int64_t> latency, buffer;
    Span<uint8_t> holds, between, gate, whole;
    Span<int32_t> partner;
    Span<int32_t> lanes;
    ChangeTable rates, delays, losses, buffers;
    Span<uint8_t> reliable;
    Span<int32_t> window;
    Span<int64_t> trip;
    Span<double> line;
    PacketMessages messages;
    PacketPaths paths;
};

void read_changes(Columns& columns, ChangeTable& table, const std::string& name) {
    columns.read(table.port, (name + "_port").c_str());
    columns.read(table.time, (name + "_time").c_str());
    columns.read(table.value, (name + "_value").c_str());
    columns.read(table.other, (name + "_other").c_str());
}

Given read(Columns& columns) {
    Given given;
    columns.read(given.byte_ps, "byte_ps");
    columns.read(given.latency, "latency");
    columns.read(given.buffer, "buffer");
    columns.read(given.holds, "holds");
    columns.read(given.between, "between");
    columns.read(given.gate, "gate");
    columns.read(given.whole, "whole");
    columns.read(given.lanes, "virtual_queues");
    read_changes(columns, given.rates, "rates");
    read_changes(columns, given.delays, "delays");
    read_changes(columns, given.losses, "losses");
    read_changes(columns, given.buffers, "buffers");
    columns.read(given.reliable, "reliable");
    columns.read(given.window, "window");
    columns.read(given.trip, "trip_ps");
    columns.read(given.line, "line_ps");
    columns.read(given.paths.starts, "path_starts");
    columns.read(given.paths.ports, "path_ports");
    columns.read(given.paths.first, "first_path");
    columns.read(given.paths.back_starts, "back_starts");
    columns.read(given.paths.back, "back_ports");
    PacketMessages& m = given.messages;
    columns.read(given.partner, "partner");
    columns.read(m.connection, "connection");
    columns.read(m.size, "size_bytes");
    columns.read(m.delay, "delay");
    columns.read(m.next_starts, "next_starts");
    columns.read(m.nexts, "nexts");
    columns.read(m.waits, "waits");
    columns.read(m.front_starts, "front_starts");
    columns.read(m.front, "front");
    columns.read(m.behind_starts, "behind_starts");
    columns.read(m.behind, "behind");
    return given;
}

void check(const ChangeTable& table, size_t ports, const char* name) {
    require_below(table.port, ports, name);
    const size_t rows = table.port.size;
    require(table.time.size == rows && table.value.size == rows && table.other.size == rows, name);
    for (size_t i = 0; i < rows; ++i) require(table.value[i] >= 0 && table.other[i] >= 0, name);
}

void check_paths(const Given& given, size_t ports, size_t connections) {
    require(given.paths.first.size == connections + 1 && given.paths.starts.size > 0, "first_path");
    const size_t paths = given.paths.starts.size - 1;
    require_cuts(given.paths.first, connections, paths, "first_path");
    require_cuts(given.paths.starts, paths, given.paths.ports.size, "path_starts");
    require_cuts(given.paths.back_starts, connections, given.paths.back.size, "back_starts");
    require(given.paths.ports.size < (size_t{1} << 31) && given.paths.back.size < (size_t{1} << 31), "path_ports");
    require_below(given.paths.ports, ports, "path_ports");
    require_below(given.paths.back, ports, "back_ports");
    for (size_t c = 0; c < connections; ++c) {
        require(given.paths.first[c] < given.paths.first[c + 1], "a connection without a path");
        require(!given.reliable[c] || given.paths.back_starts[c] < given.paths.back_starts[c + 1], "no way back");
        const int64_t own = given.paths.first[c];
        const int64_t length = given.paths.starts[own + 1] - given.paths.starts[own];
        for (int64_t path = own; path < given.paths.first[c + 1]; ++path) {
            const int64_t here = given.paths.starts[path + 1] - given.paths.starts[path];
            require(here == length && here > 0 && here < 250, "paths of a connection");
        }
        require(given.paths.back_starts[c + 1] - given.paths.back_starts[c] < 250, "back_starts");
    }
}

void check_messages(const PacketMessages& m, size_t ports, size_t connections) {
    const size_t messages = m.connection.size, all = m.waits.size;
    require(m.size.size == messages && m.delay.size == messages && all >= messages, "columns of different lengths");
    require(all < (size_t{1} << 31), "more than 2,147,483,647 messages");
    require_below_or_none(m.connection, static_cast<int64_t>(connections), "connection");
    require_cuts(m.next_starts, all, m.nexts.size, "next_starts");
    require_below(m.nexts, all, "nexts");
    require_cuts(m.front_starts, messages, m.front.size, "front_starts");
    require_cuts(m.behind_starts, messages, m.behind.size, "behind_starts");
    require_below(m.front, ports, "front");
    require_below(m.behind, ports, "behind");
    require_times(m.delay, "delay");
    for (size_t i = 0; i < messages; ++i) {
        require(m.size[i] >= 0, "size_bytes");
        require(m.front_starts[i + 1] - m.front_starts[i] < 250, "front_starts");
        require(m.behind_starts[i + 1] - m.behind_starts[i] < 250, "behind_starts");
    }
    for (size_t i = 0; i < all; ++i) require(m.waits[i] >= 0, "waits");
}

void check(const Given& given) {
    const size_t ports = given.byte_ps.size, connections = given.reliable.size;
    for (const size_t size : {given.latency.size, given.buffer.size, given.holds.size, given.between.size, given.gate.size,
                              given.whole.size, given.lanes.size}) {
        require(size == ports, "ports of different lengths");
    }
    require_ps_per_byte(given.byte_ps, "byte_ps");
    require_times(given.latency, "latency");
    for (size_t i = 0; i < ports; ++i) {
        require(given.buffer[i] >= 0 && given.gate[i] <= kCredit && given.lanes[i] >= 1 && given.lanes[i] < 250, "ports");
    }
    check(given.rates, ports, "rates");
    check(given.delays, ports, "delays");
    check(given.losses, ports, "losses");
    check(given.buffers, ports, "buffers");
    require(given.window.size == connections && given.trip.size == connections && given.line.size == connections,
            "connections of different lengths");
    require(given.partner.size == connections, "connections of different lengths");
    require_below_or_none(given.partner, static_cast<int64_t>(connections), "partner");
    check_paths(given, ports, connections);
    check_messages(given.messages, ports, connections);
}

PacketPorts ports_of(const Given& given, uint64_t seed, bool marks, int64_t bin_ps, int64_t burst) {
    PacketPorts made;
    made.marks = marks;
    made.burst = burst;
    made.bin_ps = bin_ps;
    const size_t n = given.byte_ps.size;
    made.at.resize(n);
    size_t lanes = 0;
    for (size_t i = 0; i < n; ++i) {
        PacketPort& port = made.at[i];
        port.byte_ps = given.byte_ps[i];
        port.latency = given.latency[i];
        port.buffer = given.buffer[i];
        port.holds = given.holds[i] != 0;
        port.between = given.between[i] != 0;
        port.whole = given.whole[i] != 0;
        port.gate = given.gate[i];
        port.lanes = static_cast<uint8_t>(given.lanes[i]);
        port.draws = mixed(seed * kStep + i * kStep);
        port.first_lane = static_cast<int32_t>(lanes);
        if (port.gate) lanes += static_cast<size_t>(port.lanes);
    }
    require(lanes < (size_t{1} << 31), "virtual_queues");
    made.lanes.resize(lanes);
    const bool any = given.rates.port.size || given.delays.port.size || given.losses.port.size || given.buffers.port.size;
    if (any) made.changes.resize(n);
    const auto each = [&](const ChangeTable& table, auto keep) {
        for (size_t i = 0; i < table.port.size; ++i) {
            made.at[table.port[i]].changes = true;
            keep(made.changes[table.port[i]], table.time[i], table.value[i], table.other[i]);
        }
    };
    each(given.rates, [](PacketChanges& c, int64_t time, double value, double) { c.rates.push_back({time, value}); });
    each(given.delays, [](PacketChanges& c, int64_t time, double value, double) {
        c.delays.push_back({time, static_cast<int64_t>(value)});
    });
    each(given.losses, [](PacketChanges& c, int64_t time, double data, double ack) { c.losses.push_back({time, data, ack}); });
    each(given.buffers, [](PacketChanges& c, int64_t time, double value, double) {
        c.buffers.push_back({time, static_cast<int64_t>(value)});
    });
    return made;
}

int32_t fork_of(const PacketPaths& paths, int64_t first, int64_t last) {
    const int64_t length = paths.starts[first + 1] - paths.starts[first];
    for (int64_t hop = 0; hop < length; ++hop) {
        for (int64_t path = first + 1; path < last; ++path) {
            if (paths.ports[paths.starts[path] + hop] != paths.ports[paths.starts[first] + hop]) {
                return static_cast<int32_t>(hop);
            }
        }
    }
    return 0;
}

PacketConnections connections_of(const Given& given, uint8_t control, int32_t payload, int32_t wire) {
    PacketConnections made(given.reliable.size);
    for (size_t i = 0; i < made.size(); ++i) {
        PacketConnection& c = made[i];
        c.number = static_cast<int32_t>(i);
        const int64_t path = given.paths.first[i];
        c.ports_at = static_cast<int32_t>(given.paths.starts[path]);
        c.length = static_cast<uint8_t>(given.paths.starts[path + 1] - given.paths.starts[path]);
        c.back_at = static_cast<int32_t>(given.paths.back_starts[i]);
        c.back_length = static_cast<uint8_t>(given.paths.back_starts[i + 1] - given.paths.back_starts[i]);
        c.n_paths = static_cast<int32_t>(given.paths.first[i + 1] - given.paths.first[i]);
        c.reliable = given.reliable[i] != 0;
        c.control = control;
        c.partner = given.partner[i];
        c.most_window = given.window[i];
        c.trip_ps = given.trip[i];
        c.line_ps = given.line[i];
        c.payload = payload;
        c.wire = wire;
        const double byte_ps = given.byte_ps[given.paths.ports[c.ports_at]];
        c.apart_ps = std::isinf(byte_ps) ? 0 : static_cast<int64_t>(std::ceil(wire * byte_ps));
        if (c.reliable) {
            const double back_ps = given.byte_ps[given.paths.back[c.back_at]];
            c.full_ps = std::isinf(back_ps) ? 0 : static_cast<int64_t>(std::ceil(wire * back_ps));
        }
        c.fork = fork_of(given.paths, given.paths.first[i], given.paths.first[i + 1]);
        c.begin();
    }
    return made;
}

template <class Field>
nb::object by_port(const PacketPorts& ports, Field field) {
    std::vector<int64_t> values(ports.at.size());
    for (size_t i = 0; i < values.size(); ++i) values[i] = ports.at[i].*field;
    return to_numpy(std::move(values));
}

nb::dict told(PacketLoop& loop) {
    const PacketPorts& ports = loop.ports();
    nb::dict out;
    out["start"] = to_numpy(std::move(loop.start));
    out["end"] = to_numpy(std::move(loop.end));
    out["hops"] = loop.hops;
    out["most_pending"] = loop.most_pending;
    out["retransmitted_bytes"] = loop.retransmitted;
    out["timeouts"] = loop.timeouts;
    out["drops"] = by_port(ports, &PacketPort::drops);
    out["lost"] = by_port(ports, &PacketPort::lost);
    out["pauses"] = by_port(ports, &PacketPort::pauses);
    out["marked"] = by_port(ports, &PacketPort::marked);
    out["most"] = by_port(ports, &PacketPort::most);
    out["bytes"] = by_port(ports, &PacketPort::bytes);
    out["bars"] = to_numpy(std::vector<int64_t>(ports.bars));
    std::vector<int64_t> rows;
    for (const QueueSample& each : ports.samples) rows.insert(rows.end(), {each.bin, each.port, each.bytes});
    out["samples"] = to_numpy(std::move(rows));
    out["gave_up"] = nb::make_tuple(loop.gave_up, loop.gave_up_at);
    return out;
}

void interrupt() {
    const nb::gil_scoped_acquire locked;
    if (PyErr_CheckSignals()) throw nb::python_error();
}

// `net` holds the columns (engines/packets/loops.py names them), `rules` the numbers of the protocol.
nb::dict packets(nb::object net, nb::dict rules) {
    Columns columns(net);
    const Given given = read(columns);
    const auto number = [&](const char* name) { return nb::cast<int64_t>(rules[name]); };
    PacketRules used;
    used.goes_back = number("goes_back") != 0;
    used.ordered = number("ordered") != 0;
    used.is_tcp = number("is_tcp") != 0;
    used.acknowledged = number("acknowledged") != 0;
    used.trains = number("trains") != 0;
    used.routing = static_cast<uint8_t>(number("routing"));
    used.header = static_cast<int32_t>(number("header_bytes"));
    used.ack = static_cast<int32_t>(number("ack_bytes"));
    used.every = static_cast<int32_t>(number("acks_every"));
    used.retries = static_cast<int32_t>(number("retries"));
    used.buffer = number("buffer_bytes");
    used.rto_ps = number("rto_ps");
    used.most_rto_ps = number("most_rto_ps");
    const auto control = static_cast<uint8_t>(number("control"));
    const auto payload = static_cast<int32_t>(number("payload_bytes"));
    const int64_t bin_ps = number("bin_ps"), width = number("width_ps");
    const auto seed = nb::cast<uint64_t>(rules["seed"]);
    require(payload > 0 && bin_ps > 0 && number("burst_bytes") >= 0 && used.every > 0 && control <= kDelay && used.routing <= 2, "rules");
    {
        nb::gil_scoped_release unlocked;
        check(given);
    }
    PacketLoop loop(given.messages, given.paths, used, ports_of(given, seed, control == kDcqcn, bin_ps, number("burst_bytes")),
                    connections_of(given, control, payload, payload + used.header), width);
    {
        nb::gil_scoped_release unlocked;
        loop.run(interrupt);
    }
    return told(loop);
}

}  // namespace

NB_MODULE(_packets, module) {
    module.doc() = "The packet loop; ringwright.engines.packets says what it means.";
    module.def("packets", &packets, nb::arg("net"), nb::arg("rules"));
}
