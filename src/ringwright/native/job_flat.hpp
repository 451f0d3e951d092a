// A job laid out, as engines/job/flat.py says: instances, what they wait for, where they queue, what they load.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "checks.hpp"

namespace ringwright {

enum class Model { none, factor, share, waves, measured };

struct Interference {
    Model model = Model::none;
    double slowdown = 0;
    int64_t units = 1;
    std::vector<std::vector<double>> factors;  // for measured: by kind of task, then by compute units held

    // The factor on compute time beside `running` operations that hold a share `sms` of the compute units.
    double slowed(double sms, size_t running, int32_t tiles) const {
        if (model == Model::none || running == 0) return 1.0;
        if (model == Model::factor) return 1.0 + slowdown;
        const double left = std::max(1.0 - sms, 0.05);
        if (model == Model::share || tiles <= 0) return 1.0 / left;
        if (model == Model::measured) {
            const std::vector<double>& row = factors[static_cast<size_t>(tiles) - 1];
            return row[std::min(static_cast<size_t>(sms * static_cast<double>(units) + 0.5), row.size() - 1)];
        }
        const int64_t available =
            std::max<int64_t>(static_cast<int64_t>(static_cast<double>(units) * left + 0.5), 1);
        return static_cast<double>(waves(tiles, available)) / static_cast<double>(waves(tiles, units));
    }

private:
    static int64_t waves(int64_t tiles, int64_t width) { return (tiles - 1) / width + 1; }
};

inline Model model_named(const std::string& name) {
    if (name == "none") return Model::none;
    if (name == "factor") return Model::factor;
    if (name == "share") return Model::share;
    if (name == "waves") return Model::waves;
    require(name == "measured", "interference: no such model");
    return Model::measured;
}

// Where a row of a compressed list begins and ends.
struct Row {
    int64_t first, last;
};

struct JobFlat {
    static constexpr int32_t kNoQueue = -1;

    Span<int64_t> work, latency, key, waits, after_start, after, after_many, load_start, domain_start, token_start;
    Span<int32_t> queue, tag, tiles, load, domain, token;
    Span<double> size, sms, share, claim, amount;
    // Per queue.
    Span<bool> strict, blocking;
    Span<double> window;
    Span<int64_t> issue;
    Span<int32_t> traffic;

    Span<double> capacity;
    Span<int32_t> gates;  // rows of four
    int64_t domains = 0, resources = 0, traffics = 0, tags = 0;
    Interference interference;

    size_t n() const { return work.size; }
    size_t queues() const { return window.size; }
    static Row row(const Span<int64_t>& starts, int32_t instance) { return {starts[instance], starts[instance + 1]}; }
    Row loads_of(int32_t instance) const { return row(load_start, instance); }
    Row domains_of(int32_t instance) const { return row(domain_start, instance); }
    Row tokens_of(int32_t instance) const { return row(token_start, instance); }
    int32_t home(int32_t instance) const { return domain[domain_start[instance]]; }  // of a task

    void check() const {
        check_columns();
        check_lists();
        check_queues();
        check_gates();
    }

private:
    void check_columns() const {
        const size_t n = work.size;
        require(n < (size_t{1} << 31), "more than 2,147,483,647 instances");
        require(latency.size == n && key.size == n && waits.size == n && queue.size == n && tag.size == n &&
                    tiles.size == n && size.size == n && sms.size == n,
                "columns of different lengths");
        require(domains >= 0 && resources >= 0 && traffics >= 0 && tags >= 0, "n_domains and the like: below 0");
        require(domains < kForever >> 32 && resources < kForever >> 32 && traffics < kForever >> 32 && tags < kForever >> 32,
                "n_domains and the like: too large");
        require_times(work, "work_ps");
        require_times(latency, "latency_ps");
        require_below_or_none(queue, static_cast<int64_t>(queues()), "queue");
        require_below_or_none(tag, tags, "tag");
        require_amounts(size, "size");
        require_amounts(sms, "sms");
        require(interference.slowdown >= 0 && std::isfinite(interference.slowdown), "interference: slowdown");
        require(interference.units >= 1, "interference: units");
        if (interference.model == Model::measured) check_factors();
    }

    void check_factors() const {
        for (const std::vector<double>& row : interference.factors) {
            require(!row.empty(), "interference: factors");
            for (const double factor : row) require(factor >= 1.0 && std::isfinite(factor), "interference: factors");
        }
        for (size_t at = 0; at < tiles.size; ++at) {
            require(tiles[at] <= static_cast<int64_t>(interference.factors.size()), "tiles");
        }
    }

    void check_lists() const {
        require_cuts(after_start, n(), after.size, "after_start");
        require_cuts(load_start, n(), load.size, "load_start");
        require_cuts(domain_start, n(), domain.size, "domain_start");
        require_cuts(token_start, n(), token.size, "token_start");
        check_successors();
        require_below(load, static_cast<size_t>(resources), "load");
        require_below(domain, static_cast<size_t>(domains), "domain");
        require_below(token, capacity.size, "token");
        require(share.size == load.size && claim.size == load.size && amount.size == token.size, "lists of different lengths");
        require_amounts(share, "share");
        std::vector<int32_t> loaded(static_cast<size_t>(resources), kNoQueue);  // by which instance last
        for (size_t i = 0; i < n(); ++i) {
            for (int64_t at = load_start[i]; at < load_start[i + 1]; ++at) {
                require(std::exchange(loaded[load[at]], static_cast<int32_t>(i)) != static_cast<int32_t>(i), "load: one twice");
            }
        }
        for (size_t at = 0; at < claim.size; ++at) require(claim[at] > 0, "claim: not above 0");
    }

    // Each of them a run of instances that are there; `waits` says in how many runs each instance is.
    void check_successors() const {
        require_below(after, n(), "after");
        require(after_many.size == after.size, "after_many: not as many as after");
        std::vector<int32_t> entering(n() + 1);  // more than before
        require(after.size < (size_t{1} << 31), "more than 2,147,483,647 runs of successors");
        for (size_t at = 0; at < after.size; ++at) {
            require(after_many[at] > 0 && after_many[at] <= static_cast<int64_t>(n()) - after[at], "after_many: beyond the last");
            ++entering[after[at]];
            --entering[after[at] + after_many[at]];
        }
        int64_t open = 0;
        for (size_t i = 0; i < n(); ++i) require(waits[i] == (open += entering[i]), "waits: not the number of predecessors");
    }

    void check_queues() const {
        const size_t count = queues();
        require(strict.size == count && blocking.size == count && issue.size == count && traffic.size == count,
                "queues of different lengths");
        require_times(issue, "issue_ps");
        for (size_t i = 0; i < count; ++i) {
            require(strict[i] || (traffic[i] >= 0 && traffic[i] < traffics), "traffic");
        }
        for (size_t i = 0; i < n(); ++i) {
            const bool tasks = queue[i] != kNoQueue && strict[queue[i]];
            require(!tasks || domain_start[i] < domain_start[i + 1], "domain: a task has none");
        }
    }

    void check_gates() const {
        for (size_t at = 0; at < gates.size; at += 4) {
            const int32_t by = gates[at + 1], tagged = gates[at + 2];
            require(tagged >= 0 ? tagged < tags : by >= 0 && by < traffics, "gates");
        }
    }
};

}  // namespace ringwright
