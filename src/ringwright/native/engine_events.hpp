// The event loop; engines/event_loop.py defines what it means, and both agree to the picosecond.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "calendar.hpp"

namespace ringwright {

constexpr int64_t kForever = int64_t{1} << 62;

// A moment later than another, which is never later than for ever.
inline int64_t later(int64_t at, int64_t by) { return at >= kForever - by ? kForever : at + by; }

// A column owned by someone else.
template <class T>
struct Span {
    const T* data = nullptr;
    size_t size = 0;
    const T& operator[](size_t index) const { return data[index]; }
};

struct Flat {
    Span<int64_t> hop_starts;
    Span<int32_t> hops;
    Span<int64_t> next_starts;
    Span<int32_t> nexts;
    Span<int32_t> waits;
    Span<int64_t> size_bytes;
    Span<int64_t> delay;
    // Where multicasts fork, sorted by parent: `child` leaves `parent` behind that one's hop number `hop`.
    Span<int32_t> parent;
    Span<int32_t> hop;
    Span<int32_t> child;
};

struct Resources {
    Span<double> ps_per_byte;
    Span<int64_t> latency;
    Span<uint8_t> whole;
    Span<uint8_t> holds;  // whether a resource is busy for its latency too
    Span<int64_t> change_resource;  // faults, sorted by resource, then time
    Span<int64_t> change_time;
    Span<double> change_ps_per_byte;
    Span<int64_t> delay_resource;  // likewise, latencies
    Span<int64_t> delay_time;
    Span<int64_t> delay_latency;
};

struct Delay {
    int64_t time;
    int64_t latency;
};

inline int64_t latency_at(int64_t healthy, const std::vector<Delay>& delays, int64_t begin) {
    for (const Delay& delay : delays) {
        if (delay.time <= begin) healthy = delay.latency;
    }
    return healthy;
}

class EventLoop {
public:
    EventLoop(const Flat& flat, const Resources& resources)
        : flat_(flat), state_(flat.waits.size), queue_(width(flat, resources)) {
        const size_t n = flat.waits.size;
        start.assign(n, kForever);
        end.assign(n, 0);
        for (size_t i = 0; i < n; ++i) state_[i] = flat.waits[i];
        if (flat.parent.size) {
            forks_.assign(n + 1, 0);
            for (size_t i = 0; i < flat.parent.size; ++i) ++forks_[flat.parent[i] + 1];
            for (size_t i = 0; i < n; ++i) forks_[i + 1] += forks_[i];
        }
        servers_.reserve(resources.ps_per_byte.size);
        for (size_t i = 0; i < resources.ps_per_byte.size; ++i) {
            servers_.push_back({resources.ps_per_byte[i], 0, resources.latency[i], resources.whole[i] != 0, resources.holds[i] != 0, {}, {}});
        }
        for (size_t i = 0; i < resources.change_resource.size; ++i) {
            Server& server = servers_[resources.change_resource[i]];
            server.changes.push_back({resources.change_time[i], resources.change_ps_per_byte[i]});
        }
        for (size_t i = 0; i < resources.delay_resource.size; ++i) {
            Server& server = servers_[resources.delay_resource[i]];
            server.delays.push_back({resources.delay_time[i], resources.delay_latency[i]});
        }
    }

    void run() {
        const size_t n = state_.size();
        for (size_t message = 0; message < n; ++message) {
            if (state_[message] == 0) done_.push_back(static_cast<int32_t>(message));
        }
        Event event;
        for (;;) {
            while (!done_.empty()) {
                const int32_t message = done_.back();
                done_.pop_back();
                release(message);
            }
            if (!queue_.pop(event)) break;
            serve(event);
        }
        for (size_t message = 0; message < n; ++message) {
            if (state_[message] != kFinished) end[message] = kForever;
        }
    }

    std::vector<int64_t> start, end;

private:
    static constexpr int32_t kFinished = -1;

    struct Change {
        int64_t time;
        double ps_per_byte;
    };
    struct Server {
        double ps_per_byte;
        int64_t free;
        int64_t latency;
        bool whole;
        bool holds;
        std::vector<Change> changes;
        std::vector<Delay> delays;
    };

    // A bucket holds about a sixty-fourth of a typical hop.
    static int64_t width(const Flat& flat, const Resources& resources) {
        const size_t messages = flat.size_bytes.size;
        const size_t stride = messages / 1024 + 1;
        double sum = 0;
        size_t seen = 0;
        for (size_t message = 0; message < messages; message += stride) {
            if (flat.hop_starts[message] == flat.hop_starts[message + 1]) continue;
            const int32_t hop = flat.hops[flat.hop_starts[message]];
            const double cost = static_cast<double>(flat.size_bytes[message]) * resources.ps_per_byte[hop];
            if (!(cost < 1e18)) continue;
            sum += cost + static_cast<double>(resources.latency[hop]);
            ++seen;
        }
        return seen ? static_cast<int64_t>(sum / static_cast<double>(seen) / 64) + 1 : 1;
    }

    // Send a message that waits for nothing any more on its way, or end it where it has none.
    void release(int32_t message) {
        const bool joins = static_cast<size_t>(message) >= flat_.size_bytes.size;
        const int64_t time = later(end[message], joins ? 0 : flat_.delay[message]);
        start[message] = end[message] = time;
        if (joins || flat_.hop_starts[message] == flat_.hop_starts[message + 1]) {
            finish(message, time);
        } else {
            queue_.push({time, message, 0});
        }
    }

    void finish(int32_t message, int64_t time) {
        end[message] = time;
        state_[message] = kFinished;
        const int64_t stop = flat_.next_starts[message + 1];
        for (int64_t at = flat_.next_starts[message]; at < stop; ++at) {
            const int32_t follower = flat_.nexts[at];
            if (end[follower] < time) end[follower] = time;
            if (--state_[follower] == 0) done_.push_back(follower);
        }
    }

    void serve(const Event& event) {
        const int32_t message = event.message;
        const int64_t at = flat_.hop_starts[message] + event.hop;
        Server& server = servers_[flat_.hops[at]];
        const int64_t begin = std::max(event.time, server.free);
        if (event.hop == 0) start[message] = begin;
        const int64_t stop = leave(server, begin, flat_.size_bytes[message]);
        if (stop >= kForever) return;  // the link is dead for good, and so is all behind this message
        const int64_t latency =
            server.delays.empty() ? server.latency : latency_at(server.latency, server.delays, begin);
        server.free = server.holds ? later(stop, latency) : stop;
        const int64_t tail = later(std::max(stop, end[message]), latency);
        end[message] = tail;
        if (!forks_.empty()) fork(event, tail, later(begin, latency));
        if (at + 1 == flat_.hop_starts[message + 1]) {
            finish(message, tail);
        } else {
            const int64_t entry = servers_[flat_.hops[at + 1]].whole ? tail : later(begin, latency);
            queue_.push({entry, message, event.hop + 1});
        }
    }

    // Send the branches that leave behind this hop on their ways; a branch without hops of its own has arrived.
    void fork(const Event& event, int64_t tail, int64_t head) {
        for (int32_t i = forks_[event.message]; i < forks_[event.message + 1]; ++i) {
            if (flat_.hop[i] != event.hop) continue;
            const int32_t child = flat_.child[i];
            start[child] = end[child] = tail;
            const int64_t at = flat_.hop_starts[child];
            if (at == flat_.hop_starts[child + 1]) {
                finish(child, tail);
            } else {
                queue_.push({servers_[flat_.hops[at]].whole ? tail : head, child, 0});
            }
        }
    }

    static int64_t after(int64_t begin, double duration) {
        if (begin >= kForever || !(duration < static_cast<double>(kForever))) return kForever;
        return begin + static_cast<int64_t>(duration);
    }

    // When the last of `size` bytes has left, if the first starts at `begin`.
    static int64_t leave(const Server& server, int64_t begin, int64_t size) {
        double ps_per_byte = server.ps_per_byte;
        double left = static_cast<double>(size);
        if (server.changes.empty()) return std::isinf(ps_per_byte) ? kForever : after(begin, std::ceil(left * ps_per_byte));
        int64_t now = begin;
        for (const Change& change : server.changes) {
            if (change.time > now) {
                if (!std::isinf(ps_per_byte)) {
                    const int64_t stop = after(now, std::ceil(left * ps_per_byte));
                    if (stop <= change.time) return stop;
                    left -= static_cast<double>(change.time - now) / ps_per_byte;
                }
                now = change.time;
            }
            ps_per_byte = change.ps_per_byte;
        }
        return std::isinf(ps_per_byte) ? kForever : after(now, std::ceil(left * ps_per_byte));
    }

    const Flat& flat_;
    std::vector<int32_t> state_;  // how many each still waits for, or kFinished
    std::vector<Server> servers_;
    std::vector<int32_t> done_;
    std::vector<int32_t> forks_;  // cuts `flat_.child` by parent, where there are any
    Calendar queue_;
};

}  // namespace ringwright
