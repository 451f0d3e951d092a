// Which tensors to merge: what schedulers/priority/_fusion.py defines, with the same cuts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <queue>
#include <tuple>
#include <vector>

#include "checks.hpp"

namespace ringwright {

// What a group of so many bytes takes: alpha for each slice, beta for each byte.
struct SlicedSeconds {
    double alpha, beta, slice;
    double operator()(double size) const { return std::max(1.0, std::ceil(size / slice)) * alpha + beta * size; }
};

struct MergeLimits {
    int64_t states, rounds, search;
};

class Merging {
public:
    Merging(const Span<double>& ready, const Span<double>& tail, const Span<double>& size, SlicedSeconds seconds, MergeLimits limits)
        : ready_(ready), tail_(tail), size_(size), n_(static_cast<int64_t>(ready.size)), seconds_(seconds), limits_(limits) {}

    std::vector<int64_t> cuts() {
        std::vector<int64_t> found = prefixes();
        return n_ <= limits_.search ? improved(std::move(found)) : found;
    }

private:
    using Cuts = std::vector<int64_t>;
    static constexpr int32_t kNone = -1;

    struct State {
        double free, worst;
        int64_t cuts;
        int32_t last;  // of `chain_`
    };
    struct Cut {
        int64_t at;
        int32_t before;
    };
    struct Job {
        double ready, time, tail;
    };

    Cuts prefixes() {
        std::vector<std::vector<State>> states{{{0.0, 0.0, 0, kNone}}};
        for (int64_t end = 1; end <= n_; ++end) {
            std::vector<State> reached;
            std::vector<int64_t> begins;
            double size = 0, tail = 0;
            for (int64_t begin = end - 1; begin > std::max<int64_t>(-1, end - 1 - limits_.search); --begin) {
                size += size_[begin];
                tail = std::max(tail, tail_[begin]);
                const double takes = seconds_(size);
                for (const State& each : states[begin]) {
                    const double done = std::max(each.free, ready_[end - 1]) + takes;
                    reached.push_back({done, std::max(each.worst, done + tail), each.cuts + (begin > 0), each.last});
                    begins.push_back(begin);
                }
            }
            states.push_back(undominated(reached, begins));
        }
        const auto best = std::min_element(states.back().begin(), states.back().end(),
                                           [](const State& one, const State& other) { return one.worst < other.worst; });
        Cuts listed;
        for (int32_t last = best->last; last != kNone; last = chain_[last].before) listed.push_back(chain_[last].at);
        std::reverse(listed.begin(), listed.end());
        return listed;
    }

    std::vector<State> undominated(const std::vector<State>& reached, const std::vector<int64_t>& begins) {
        order_.resize(reached.size());
        for (size_t i = 0; i < order_.size(); ++i) order_[i] = i;
        std::sort(order_.begin(), order_.end(), [&](size_t one, size_t other) {
            const State &a = reached[one], &b = reached[other];
            return std::tie(a.free, a.worst, a.cuts, one) < std::tie(b.free, b.worst, b.cuts, other);
        });
        std::vector<size_t> kept;
        for (const size_t each : order_) {
            if (kept.empty() || reached[each].worst < reached[kept.back()].worst) kept.push_back(each);
        }
        const size_t most = static_cast<size_t>(limits_.states), stride = std::max<size_t>(1, (kept.size() + most - 1) / most);
        std::vector<State> left;
        for (size_t at = 0; at < kept.size(); at += stride) {
            State state = reached[kept[at]];
            if (begins[kept[at]] > 0) {
                chain_.push_back({begins[kept[at]], state.last});
                state.last = static_cast<int32_t>(chain_.size() - 1);
            }
            left.push_back(state);
        }
        return left;
    }

    Cuts improved(Cuts cuts) {
        double best = value(cuts);
        for (int64_t round = 0; round < limits_.rounds; ++round) {
            Cuts better;
            bool any = false;
            for (Cuts& candidate : moves(cuts)) {
                const double took = value(candidate);
                if (!(took < best * (1 - 1e-9))) continue;
                best = took;
                better = std::move(candidate);
                any = true;
            }
            if (!any) return cuts;
            cuts = std::move(better);
        }
        return cuts;
    }

    std::vector<Cuts> moves(const Cuts& cuts) const {
        const auto have = [&cuts](int64_t at) { return std::binary_search(cuts.begin(), cuts.end(), at); };
        std::vector<Cuts> found;
        for (size_t at = 0; at < cuts.size(); ++at) {
            found.push_back(cuts);
            found.back().erase(found.back().begin() + static_cast<std::ptrdiff_t>(at));
        }
        for (size_t at = 0; at < cuts.size(); ++at) {
            for (const int64_t moved : {cuts[at] - 1, cuts[at] + 1}) {
                if (moved <= 0 || moved >= n_ || have(moved)) continue;
                found.push_back(cuts);
                found.back()[at] = moved;  // nobody is passed: a neighbour that is there is no place to move to
            }
        }
        for (int64_t more = 1; more < n_; more += std::max<int64_t>(1, n_ / 64)) {
            if (have(more)) continue;
            found.push_back(cuts);
            found.back().insert(std::lower_bound(found.back().begin(), found.back().end(), more), more);
        }
        return found;
    }

    double value(const Cuts& cuts) {
        jobs_.clear();
        for (size_t at = 0; at <= cuts.size(); ++at) {
            const int64_t first = at ? cuts[at - 1] : 0, behind = at < cuts.size() ? cuts[at] : n_;
            double ready = ready_[first], tail = tail_[first], size = 0;
            for (int64_t i = first; i < behind; ++i) {
                ready = std::max(ready, ready_[i]);
                tail = std::max(tail, tail_[i]);
                size += size_[i];
            }
            jobs_.push_back({ready, seconds_(size), tail});
        }
        return preemptive();
    }

    // The largest tail of what is there goes first; the least possible max(end + tail).
    double preemptive() {
        const size_t n = jobs_.size();
        order_.resize(n);
        for (size_t i = 0; i < n; ++i) order_[i] = i;
        std::sort(order_.begin(), order_.end(), [this](size_t one, size_t other) {
            const Job &a = jobs_[one], &b = jobs_[other];
            return std::tie(a.ready, a.time, a.tail, one) < std::tie(b.ready, b.time, b.tail, other);
        });
        using Waiting = std::tuple<double, double, size_t>;  // -tail, time left, job
        std::priority_queue<Waiting, std::vector<Waiting>, std::greater<Waiting>> waiting;
        double now = 0, worst = -std::numeric_limits<double>::infinity();
        for (size_t at = 0; at < n || !waiting.empty();) {
            if (waiting.empty()) now = std::max(now, jobs_[order_[at]].ready);
            for (; at < n && jobs_[order_[at]].ready <= now; ++at) waiting.push({-jobs_[order_[at]].tail, jobs_[order_[at]].time, order_[at]});
            const auto [tail, left, job] = waiting.top();
            waiting.pop();
            const double until = at < n ? jobs_[order_[at]].ready : std::numeric_limits<double>::infinity();
            if (now + left <= until) {
                now += left;
                worst = std::max(worst, now + jobs_[job].tail);
            } else {
                waiting.push({tail, left - (until - now), job});
                now = until;
            }
        }
        return worst;
    }

    const Span<double> ready_, tail_, size_;
    const int64_t n_;
    const SlicedSeconds seconds_;
    const MergeLimits limits_;
    std::vector<Cut> chain_;
    std::vector<size_t> order_;
    std::vector<Job> jobs_;
};

}  // namespace ringwright
