// Python bindings of the engines' hot loops. What they mean is said by engines/event_loop.py, hazards.py, flow_loop.py and
// job/loop.py, and of one search: schedulers/priority/_fusion.py.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "checks.hpp"
#include "columns.hpp"
#include "engine_events.hpp"
#include "engine_flows.hpp"
#include "engine_hazards.hpp"
#include "engine_jobs.hpp"
#include "merging.hpp"
#include "message_checks.hpp"
#include "places.hpp"

namespace nb = nanobind;
using namespace ringwright;

namespace {

template <class Loop, class... More>
nb::tuple simulate(const Flat& flat, const Resources& resources, const More&... more) {
    std::vector<int64_t> start, end;
    {
        nb::gil_scoped_release unlocked;
        check(flat, resources);
        Loop loop(flat, resources, more...);
        loop.run();
        start = std::move(loop.start);
        end = std::move(loop.end);
    }
    return nb::make_tuple(to_numpy(std::move(start)), to_numpy(std::move(end)));
}

nb::tuple events(Input<int64_t> hop_starts, Input<int32_t> hops, Input<int64_t> next_starts, Input<int32_t> nexts,
                 Input<int32_t> waits, Input<int64_t> size_bytes, Input<int64_t> delay, Input<int32_t> parent,
                 Input<int32_t> hop, Input<int32_t> child, Input<double> ps_per_byte,
                 Input<int64_t> latency, Input<uint8_t> whole, Input<uint8_t> holds, Input<int64_t> change_resource,
                 Input<int64_t> change_time, Input<double> change_ps_per_byte, Input<int64_t> delay_resource,
                 Input<int64_t> delay_time, Input<int64_t> delay_latency) {
    const Flat flat{view(hop_starts), view(hops),       view(next_starts), view(nexts),
                    view(waits),      view(size_bytes), view(delay),       view(parent),
                    view(hop),        view(child)};
    const Resources resources{view(ps_per_byte),           view(latency),     view(whole),
                              view(holds),          view(change_resource), view(change_time), view(change_ps_per_byte),
                              view(delay_resource), view(delay_time),  view(delay_latency)};
    return simulate<EventLoop>(flat, resources);
}

nb::tuple flows(Input<int64_t> hop_starts, Input<int32_t> hops, Input<int64_t> next_starts, Input<int32_t> nexts,
                Input<int32_t> waits, Input<int64_t> size_bytes, Input<int64_t> delay, Input<double> ps_per_byte,
                Input<int64_t> latency, Input<uint8_t> whole, Input<uint8_t> holds, Input<int64_t> change_resource,
                Input<int64_t> change_time, Input<double> change_ps_per_byte, Input<int64_t> delay_resource,
                Input<int64_t> delay_time, Input<int64_t> delay_latency, Input<int32_t> owner, Input<int64_t> starts,
                Input<int32_t> ways) {
    const Flat flat{view(hop_starts), view(hops),       view(next_starts), view(nexts),
                    view(waits),      view(size_bytes), view(delay),       {}, {}, {}};
    const Resources resources{view(ps_per_byte),           view(latency),     view(whole),
                              view(holds),          view(change_resource), view(change_time), view(change_ps_per_byte),
                              view(delay_resource), view(delay_time),  view(delay_latency)};
    const Classes classes{view(owner), view(starts), view(ways)};
    require(classes.starts.size > 0 && classes.owner.size == flat.size_bytes.size, "classes");
    require_cuts(classes.starts, classes.starts.size - 1, classes.ways.size, "classes");
    require_below(classes.owner, classes.starts.size - 1, "classes");
    require_below(classes.ways, resources.ps_per_byte.size, "classes");
    return simulate<FlowLoop>(flat, resources, classes);
}

// Rates of flows that each use some resources; for one solve, without time.
nb::object fair_rates(Input<int64_t> starts, Input<int32_t> ways, Input<int64_t> capacity) {
    require(starts.shape(0) > 0, "starts");
    const size_t flows = starts.shape(0) - 1, resources = capacity.shape(0);
    require_cuts(view(starts), flows, ways.shape(0), "starts");
    require_below(view(ways), resources, "ways");
    require_times(view(capacity), "capacity");  // the same bounds: neither below nothing nor beyond all sums
    std::vector<int64_t> rates(flows);
    {
        nb::gil_scoped_release unlocked;
        solve_once(view(starts), view(ways), view(capacity), rates);
    }
    return to_numpy(std::move(rates));
}

// `message` and `step` per piece, pieces in the order of their steps.
nb::tuple order(Input<int32_t> message, Input<int32_t> step, Input<int64_t> reads, Input<int64_t> writes,
                int32_t messages) {
    const size_t n = message.shape(0);
    Order found;
    {
        nb::gil_scoped_release unlocked;
        require(messages >= 0, "messages");
        require(step.shape(0) == n && reads.shape(0) == n && writes.shape(0) == n, "columns of different lengths");
        require_below(view(reads), SIZE_MAX, "reads");
        require_below(view(writes), SIZE_MAX, "writes");
        require_below(view(message), static_cast<size_t>(messages), "message");
        const Places places(view(reads), view(writes));
        Hazards hazards(places.count, messages);
        for (size_t from = 0, to = 0; from < n; from = to) {
            while (to < n && step.data()[to] == step.data()[from]) ++to;
            hazards.step(message.data(), places.reads.data(), places.writes.data(), from, to);
        }
        found = hazards.order();
    }
    return nb::make_tuple(to_numpy(std::move(found.next_starts)), to_numpy(std::move(found.nexts)),
                          to_numpy(std::move(found.waits)));
}

JobFlat read_job(Columns& flat, Columns& queues) {
    JobFlat job;
    flat.read(job.work, "work_ps");
    flat.read(job.latency, "latency_ps");
    flat.read(job.queue, "queue");
    flat.read(job.key, "key");
    flat.read(job.size, "size");
    flat.read(job.waits, "waits");
    flat.read(job.tag, "tag");
    flat.read(job.tiles, "tiles");
    flat.read(job.sms, "sms");
    flat.read(job.after_start, "after_start");
    flat.read(job.after, "after");
    flat.read(job.after_many, "after_many");
    flat.read(job.load_start, "load_start");
    flat.read(job.load, "load");
    flat.read(job.share, "share");
    flat.read(job.claim, "claim");
    flat.read(job.domain_start, "domain_start");
    flat.read(job.domain, "domain");
    flat.read(job.token_start, "token_start");
    flat.read(job.token, "token");
    flat.read(job.amount, "amount");
    flat.read(job.capacity, "capacity");
    flat.read_gates(job.gates, "gates");
    queues.read(job.strict, "strict");
    queues.read(job.blocking, "blocking");
    queues.read(job.window, "window");
    queues.read(job.issue, "issue_ps");
    queues.read(job.traffic, "traffic");
    return job;
}

void interrupt() {
    const nb::gil_scoped_acquire locked;
    if (PyErr_CheckSignals()) throw nb::python_error();
}

// `flat` is an engines.job.flat.Flat; the result is what Times holds.
nb::tuple job(nb::object flat) {
    const nb::object queues = flat.attr("queues"), beside = flat.attr("interference");
    Columns columns(flat), of_queues(queues);
    JobFlat laid = read_job(columns, of_queues);
    laid.domains = nb::cast<int64_t>(flat.attr("n_domains"));
    laid.resources = nb::cast<int64_t>(flat.attr("n_resources"));
    laid.traffics = nb::cast<int64_t>(flat.attr("n_traffic"));
    laid.tags = nb::cast<int64_t>(flat.attr("n_tags"));
    laid.interference.model = model_named(nb::cast<std::string>(beside.attr("model")));
    laid.interference.slowdown = nb::cast<double>(beside.attr("slowdown"));
    laid.interference.units = nb::cast<int64_t>(beside.attr("units"));
    laid.interference.factors = nb::cast<std::vector<std::vector<double>>>(beside.attr("factors"));
    std::vector<int64_t> times[4];
    int64_t events;
    {
        nb::gil_scoped_release unlocked;
        laid.check();
        JobLoop loop(laid);
        loop.run(interrupt);
        std::vector<int64_t>* found[] = {&loop.ready, &loop.start, &loop.moved, &loop.end};
        for (size_t i = 0; i < 4; ++i) times[i] = std::move(*found[i]);
        events = loop.events;
    }
    return nb::make_tuple(to_numpy(std::move(times[0])), to_numpy(std::move(times[1])), to_numpy(std::move(times[2])),
                          to_numpy(std::move(times[3])), events);
}

// Where runs of tensors in ready order are cut into groups that are sent as one; groups are sent in slices.
nb::object merged(Input<double> ready, Input<double> tail, Input<double> size, double slice, double alpha, double beta,
                  int64_t states, int64_t rounds, int64_t search) {
    const size_t n = ready.shape(0);
    require(n > 0 && tail.shape(0) == n && size.shape(0) == n, "columns of different lengths, or empty");
    for (const auto& column : {view(ready), view(tail), view(size)}) require_amounts(column, "ready, tail or size");
    require(slice > 0 && alpha >= 0 && beta >= 0 && states > 0 && search > 0, "slice, alpha, beta, states or search");
    std::vector<int64_t> cuts;
    {
        nb::gil_scoped_release unlocked;
        cuts = Merging(view(ready), view(tail), view(size), {alpha, beta, slice}, {states, rounds, search}).cuts();
    }
    return to_numpy(std::move(cuts));
}

}  // namespace

NB_MODULE(_engine, module) {
    module.doc() = "The hot loops of the engines; ringwright.engines says what they mean.";
    module.def("events", &events, nb::arg("hop_starts"), nb::arg("hops"), nb::arg("next_starts"), nb::arg("nexts"),
               nb::arg("waits"), nb::arg("size_bytes"), nb::arg("delay"), nb::arg("parent"), nb::arg("hop"), nb::arg("child"), nb::arg("ps_per_byte"), nb::arg("latency"),
               nb::arg("whole"), nb::arg("holds"), nb::arg("change_resource"), nb::arg("change_time"),
               nb::arg("change_ps_per_byte"), nb::arg("delay_resource"), nb::arg("delay_time"), nb::arg("delay_latency"));
    module.def("flows", &flows, nb::arg("hop_starts"), nb::arg("hops"), nb::arg("next_starts"), nb::arg("nexts"),
               nb::arg("waits"), nb::arg("size_bytes"), nb::arg("delay"), nb::arg("ps_per_byte"), nb::arg("latency"),
               nb::arg("whole"), nb::arg("holds"), nb::arg("change_resource"), nb::arg("change_time"),
               nb::arg("change_ps_per_byte"), nb::arg("delay_resource"), nb::arg("delay_time"), nb::arg("delay_latency"), nb::arg("owner"), nb::arg("starts"), nb::arg("ways"));
    module.def("fair_rates", &fair_rates, nb::arg("starts"), nb::arg("ways"), nb::arg("capacity"));
    module.def("order", &order, nb::arg("message"), nb::arg("step"), nb::arg("reads"), nb::arg("writes"),
               nb::arg("messages"));
    module.def("job", &job, nb::arg("flat"));
    module.def("merged", &merged, nb::arg("ready"), nb::arg("tail"), nb::arg("size"), nb::arg("slice_bytes"), nb::arg("alpha"), nb::arg("beta"),
               nb::arg("states"), nb::arg("rounds"), nb::arg("search"));
}
