// The flow loop; engines/flow_loop.py defines what it means, and both agree to the picosecond.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

#include "engine_events.hpp"
#include "class_lists.hpp"
#include "fairness.hpp"

namespace ringwright {

class FlowLoop {
public:
    FlowLoop(const Flat& flat, const Resources& resources, const Classes& classes)
        : flat_(flat), changes_(resources), spec_(classes), waits_(flat.waits.size),
          ready_(flat.waits.size, 0), classes_(classes.starts.size - 1), lists_(classes, resources.ps_per_byte.size),
          capacity_(resources.ps_per_byte.size),
          load_(resources.ps_per_byte.size, 0), flows_(resources.ps_per_byte.size, 0), touched_mark_(resources.ps_per_byte.size, 0),
          seen_(resources.ps_per_byte.size, 0), found_(classes_.size(), 0), filling_(resources.ps_per_byte.size, classes_.size()) {
        start.assign(flat.waits.size, kForever);
        end.assign(flat.waits.size, kForever);
        for (size_t i = 0; i < waits_.size(); ++i) waits_[i] = flat.waits[i];
        for (size_t i = 0; i < capacity_.size(); ++i) capacity_[i] = rate_of(resources.ps_per_byte[i]);
        for (size_t number = 0; number < classes_.size(); ++number) {
            for (const int32_t resource : way(static_cast<int32_t>(number))) {
                classes_[number].delay = later(classes_[number].delay, resources.latency[resource]);
            }
        }
        delays_.resize(resources.delay_resource.size ? capacity_.size() : 0);
        for (size_t i = 0; i < resources.delay_resource.size; ++i) {
            delays_[resources.delay_resource[i]].push_back({resources.delay_time[i], resources.delay_latency[i]});
        }
        for (size_t i = 0; i < resources.change_time.size; ++i) {
            queue_.push({resources.change_time[i], kChange, static_cast<int32_t>(i)});
        }
    }

    void run() {
        for (size_t message = 0; message < waits_.size(); ++message) {
            if (flat_.waits[message] == 0) release(static_cast<int32_t>(message), 0);
        }
        while (!queue_.empty()) {
            const int64_t now = queue_.top().time;
            while (!queue_.empty() && queue_.top().time == now) {
                const Item item = queue_.top();
                queue_.pop();
                switch (item.kind) {
                    case kChange: change(item.number); break;
                    case kDrained: drained(item.number, now); break;
                    case kStart: begin(item.number, now); break;
                    default: arrive(item.number, now);
                }
            }
            solve(now);
        }
    }

    std::vector<int64_t> start, end;

private:
    enum Kind : int32_t { kChange, kDrained, kStart, kArrival };

    struct Item {
        int64_t time;
        int32_t kind;
        int32_t number;

        bool operator>(const Item& other) const {
            if (time != other.time) return time > other.time;
            return kind != other.kind ? kind > other.kind : number > other.number;
        }
    };

    using Target = std::pair<double, int32_t>;  // what `served` must reach, message

    struct Class {
        std::vector<Target> targets;  // heap, least first
        double served = 0;
        int64_t rate = 0, at = 0, due = kForever, delay = 0;
        bool is_new = false;  // has flows, but no rate yet
    };

    Way way(int32_t number) const { return lists_.way(number); }

    static constexpr double kUnit = 1125899906842624.0;  // 2^50: one byte per picosecond
    static constexpr double kMostRate = 1024.0;
    static constexpr double kSlack = 1e-3;
    static constexpr int64_t kHigh = int64_t{1} << 62;

    // Latency of the way of a class, for a message whose last byte leaves now.
    int64_t delay(int32_t number, int64_t now) const {
        if (delays_.empty()) return classes_[number].delay;
        int64_t sum = 0;
        for (const int32_t resource : way(number)) {
            sum = later(sum, latency_at(changes_.latency[resource], delays_[resource], now));
        }
        return sum;
    }

    static int64_t rate_of(double ps_per_byte) {
        return static_cast<int64_t>(std::min(ps_per_byte > 0 ? 1 / ps_per_byte : kMostRate, kMostRate) * kUnit);
    }

    // Rates below the floor are not touched by what happens at this instant; levels within rounding of it are.
    void lower(int64_t rate) { floor_ = std::min(floor_, rate - (rate >> 28)); }

    static void advance(Class& each, int64_t now) {
        each.served += static_cast<double>(each.rate) / kUnit * static_cast<double>(now - each.at);
        each.at = now;
    }

    void release(int32_t message, int64_t now) {
        if (static_cast<size_t>(message) >= flat_.size_bytes.size) {
            start[message] = now;
            arrive(message, now);
        } else {
            queue_.push({later(now, flat_.delay[message]), kStart, message});
        }
    }

    void begin(int32_t message, int64_t now) {
        start[message] = now;
        const int32_t number = spec_.owner[message];
        Class& each = classes_[number];
        if (flat_.size_bytes[message] == 0 || spec_.starts[number] == spec_.starts[number + 1]) {
            queue_.push({later(now, delay(number, now)), kArrival, message});
            return;
        }
        if (!each.targets.empty()) {
            advance(each, now);
        } else {
            each.served = 0;
            each.rate = 0;
            each.at = now;
            each.is_new = true;
            lists_.enter(number);
        }
        each.targets.push_back({each.served + static_cast<double>(flat_.size_bytes[message]), message});
        std::push_heap(each.targets.begin(), each.targets.end(), std::greater<>());
        for (const int32_t resource : way(number)) {
            load_[resource] += each.rate;
            ++flows_[resource];
        }
        for (const int32_t resource : way(number)) lower(capacity_[resource] / flows_[resource]);
        touch(number);
    }

    void drained(int32_t number, int64_t now) {
        Class& each = classes_[number];
        if (each.due != now) return;  // planned before its rate changed
        advance(each, now);
        each.due = kForever;
        lower(each.rate);
        const double reached = std::max(each.served, each.targets.front().first);
        while (!each.targets.empty() && each.targets.front().first <= reached) {
            queue_.push({later(now, delay(number, now)), kArrival, each.targets.front().second});
            std::pop_heap(each.targets.begin(), each.targets.end(), std::greater<>());
            each.targets.pop_back();
            for (const int32_t resource : way(number)) {
                load_[resource] -= each.rate;
                --flows_[resource];
            }
        }
        if (each.targets.empty()) lists_.leave(number);
        touch(number);
    }

    void arrive(int32_t message, int64_t now) {
        end[message] = now;
        for (int64_t at = flat_.next_starts[message]; at < flat_.next_starts[message + 1]; ++at) {
            const int32_t follower = flat_.nexts[at];
            ready_[follower] = std::max(ready_[follower], now);
            if (--waits_[follower] == 0) release(follower, ready_[follower]);
        }
    }

    void change(int32_t number) {
        const int32_t resource = static_cast<int32_t>(changes_.change_resource[number]);
        const int64_t before = capacity_[resource];
        capacity_[resource] = rate_of(changes_.change_ps_per_byte[number]);
        lower(std::min(before, capacity_[resource]) / std::max<int64_t>(flows_[resource], 1));
        touch_one(resource);
    }

    void touch(int32_t number) {
        for (const int32_t resource : way(number)) touch_one(resource);
    }

    void touch_one(int32_t resource) {
        if (touched_mark_[resource]) return;
        touched_mark_[resource] = 1;
        touched_.push_back(resource);
    }

    void solve(int64_t now) {
        while (!touched_.empty()) {
            const int32_t resource = touched_.back();
            touched_.pop_back();
            if (!touched_mark_[resource]) continue;  // solved with an earlier part
            connect(resource);
            for (const int32_t number : part_) {
                Class& each = classes_[number];
                advance(each, now);
                const int64_t rates = each.rate * static_cast<int64_t>(each.targets.size());
                for (const int32_t used : way(number)) load_[used] -= rates;
                each.rate = 0;  // its old rate is planned anew below
            }
            filling_.solve(
                part_, [this](int32_t number) { return way(number); },
                [this](int32_t number) { return static_cast<int64_t>(classes_[number].targets.size()); },
                [this](int32_t used) { return lists_.users(used); },
                [this](int32_t used) { return capacity_[used] - load_[used]; },
                [this](int32_t number, int64_t rate) { set_rate(number, rate); });
        }
        floor_ = kHigh;
    }

    void set_rate(int32_t number, int64_t rate) {
        Class& each = classes_[number];
        const int64_t rates = rate * static_cast<int64_t>(each.targets.size());
        for (const int32_t used : way(number)) load_[used] += rates;
        each.rate = rate;
        each.is_new = false;
        const int64_t due = plan(each);
        if (due == each.due) return;
        each.due = due;
        if (due < kForever) queue_.push({due, kDrained, number});
    }

    static int64_t plan(const Class& each) {
        if (each.targets.empty() || each.rate == 0) return kForever;
        const double left = each.targets.front().first - each.served;
        const double wait = std::ceil(std::max(left / (static_cast<double>(each.rate) / kUnit) - kSlack, 0.0));
        return wait < static_cast<double>(kForever) ? later(each.at, static_cast<int64_t>(wait)) : kForever;
    }

    // The classes that share resources with this one, directly or through others.
    void connect(int32_t resource) {
        part_.clear();
        front_.assign(1, resource);
        ++round_;
        seen_[resource] = round_;
        while (!front_.empty()) {
            const int32_t here = front_.back();
            front_.pop_back();
            touched_mark_[here] = 0;
            for (const int32_t number : lists_.users(here)) {
                if (found_[number] == round_ || !(classes_[number].is_new || classes_[number].rate >= floor_)) continue;
                found_[number] = round_;
                part_.push_back(number);
                for (const int32_t each : way(number)) {
                    if (seen_[each] == round_) continue;
                    seen_[each] = round_;
                    front_.push_back(each);
                }
            }
        }
    }

    const Flat& flat_;
    const Resources& changes_;
    const Classes& spec_;
    std::vector<int32_t> waits_;
    std::vector<int64_t> ready_;
    std::vector<Class> classes_;
    ClassLists lists_;
    std::vector<int64_t> capacity_, load_, flows_;  // per resource: limit, rates in use, flows
    int64_t floor_ = kHigh;
    std::vector<std::vector<Delay>> delays_;  // per resource, where there are any
    std::vector<char> touched_mark_;
    std::vector<int32_t> touched_, part_, front_;
    std::vector<int64_t> seen_, found_;
    int64_t round_ = 0;
    Filling filling_;
    std::priority_queue<Item, std::vector<Item>, std::greater<Item>> queue_;
};

}  // namespace ringwright
