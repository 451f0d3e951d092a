// The packet loop; engines/packets/loop.py defines what it means, and both agree to the picosecond.
// What ends of connections do is in packet_ends.hpp, what gated ports do in packet_gates.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "packet_calendar.hpp"
#include "packet_connection.hpp"
#include "packet_ports.hpp"

namespace ringwright {

struct PacketRules {
    bool goes_back = false, ordered = true, is_tcp = false, acknowledged = false, trains = true;
    uint8_t routing = 0;  // one, spray, adaptive
    int32_t header = 0, ack = 0, every = 1, retries = 0;
    int64_t rto_ps = 0, most_rto_ps = 0, buffer = 0;
};

// Messages, as engines.packets.layout.PacketNetwork holds them.
struct PacketMessages {
    Span<int32_t> connection;
    Span<int64_t> size, delay, next_starts;
    Span<int32_t> nexts, waits;
    Span<int64_t> front_starts;
    Span<int32_t> front;
    Span<int64_t> behind_starts;
    Span<int32_t> behind;
};

struct PacketPaths {
    Span<int64_t> starts;
    Span<int32_t> ports;
    Span<int64_t> first;
    Span<int64_t> back_starts;
    Span<int32_t> back;
};

// A path as a packet follows it.
struct PacketWay {
    const int32_t* ports;
    int32_t length;
    int32_t operator[](int32_t hop) const { return ports[hop]; }
};

class PacketLoop {
public:
    PacketLoop(const PacketMessages& messages, const PacketPaths& paths, const PacketRules& rules, PacketPorts&& ports,
               PacketConnections&& connections, int64_t width)
        : messages_(messages), paths_(paths), rules_(rules), ports_(std::move(ports)),
          connections_(std::move(connections)), queue_(width, pool_) {
        const size_t n = messages.waits.size;
        waits_.assign(messages.waits.data, messages.waits.data + n);
        left_.assign(n, 0);
        owed_.assign(n, 0);
        done_at_.assign(n, 0);
        ready_.assign(n, 0);
        start.assign(n, kForever);
        end.assign(n, kForever);
        const auto carries = [](const PacketConnection& c) { return c.partner >= 0; };
        if (std::any_of(connections_.begin(), connections_.end(), carries)) carried_.resize(connections_.size());
    }

    void run(void (*interrupt)()) {
        for (size_t message = 0; message < waits_.size(); ++message) {
            if (!waits_[message]) done_.push_back(static_cast<int32_t>(message));
        }
        for (int64_t served = 0; gave_up < 0; ++served) {
            while (!done_.empty()) {
                const int32_t message = done_.back();
                done_.pop_back();
                release(message);
            }
            most_pending = std::max(most_pending, static_cast<int64_t>(queue_.size()));
            PacketNode* node = queue_.pop();
            if (!node) break;
            if (const PacketEvent* later = queue_.soon(2 * kAhead)) fetch(*later);
            if (const PacketEvent* next = queue_.soon(kAhead)) fetch_more(*next);
            serve(node);
            if ((served & 0xFFFFF) == 0xFFFFF) interrupt();
        }
        for (size_t port = 0; port < ports_.at.size(); ++port) ports_.close_bin(static_cast<int32_t>(port));
        std::sort(ports_.samples.begin(), ports_.samples.end());
    }

    const PacketPorts& ports() const { return ports_; }

    std::vector<int64_t> start, end;
    int64_t most_pending = 0, hops = 0, retransmitted = 0, timeouts = 0, gave_up = -1, gave_up_at = kForever;

private:
    static constexpr size_t kAhead = 6;  // events that are fetched ahead of their turn

    // Fetch what an event will need, so that it is in the cache by then.
    void fetch(const PacketEvent& event) const {
        if (event.kind == kPort) {
            const PacketPort& port = ports_.at[event.owner];
            if (port.leaving >= 0) fetch_sender(connections_[port.leaving]);
            __builtin_prefetch(ports_.lane(port, port.last).queue.first);
        } else if (event.kind == kTimer) {
            fetch_sender(connections_[event.owner]);
        } else if (event.kind == kData || event.kind == kAck) {
            const PacketWay path = way(event);
            __builtin_prefetch(path.ports);
            if (event.hop < path.length) return;
            const PacketConnection& c = connections_[event.owner];
            __builtin_prefetch(&c.missing);
            if (event.kind == kData) {
                __builtin_prefetch(&c.early);
            } else {
                __builtin_prefetch(&c.srtt);
                fetch_sender(c);
            }
        }
    }

    static void fetch_sender(const PacketConnection& c) {
        __builtin_prefetch(&c.number);
        __builtin_prefetch(&c.local_until);
        __builtin_prefetch(&c.missing);
    }

    // Fetch what the data that were fetched tell: the port to come, the path of what goes next, the end of a queue.
    void fetch_more(const PacketEvent& event) const {
        if (event.kind == kPort) {
            const PacketPort& port = ports_.at[event.owner];
            const PacketQueue& queue = ports_.lane(port, port.last).queue;
            if (queue.first) __builtin_prefetch(way(queue.first->event).ports);
            if (port.leaving < 0) return;
            __builtin_prefetch(queue.last);
            fetch_path(connections_[port.leaving]);
        } else if (event.kind == kTimer) {
            fetch_path(connections_[event.owner]);
        } else if (event.kind == kData || event.kind == kAck) {
            const PacketWay path = way(event);
            const PacketConnection& c = connections_[event.owner];
            if (event.hop < path.length) {
                const PacketPort& port = ports_.at[path[event.hop]];
                __builtin_prefetch(&port.answers);
                if (port.gate) __builtin_prefetch(ports_.lane_at(port, event.hop).queue.last);
            } else if (event.kind == kAck) {
                fetch_path(c);
            } else {
                __builtin_prefetch(paths_.back.data + c.back_at);
                __builtin_prefetch(left_.data() + c.parts[c.part].message);
            }
        }
    }

    void fetch_path(const PacketConnection& c) const { __builtin_prefetch(paths_.ports.data + c.ports_at); }

    void serve(PacketNode* node) {
        kind_ = node->event.kind;
        owner_ = node->event.owner;
        if (kind_ == kData) {
            data(node);
            return;
        }
        if (kind_ == kAck) {
            arrive(node);
            return;
        }
        if (kind_ == kPort || kind_ == kTimer) {
            const int64_t now = node->event.time;
            pool_.give(node);
            if (kind_ == kPort) {
                is_free(owner_, now);
            } else {
                woken(connections_[owner_], now);
            }
            return;
        }
        const PacketEvent event = node->event;
        pool_.give(node);
        if (kind_ == kStart) {
            in_front(event);
        } else if (kind_ == kBehind) {
            behind(event);
        } else {
            pausing(event);
        }
    }

    // Let something happen that is no packet, written where it stays.
    void happen(uint8_t kind, int64_t time, int32_t owner) {
        PacketNode* node = pool_.take();
        node->event = PacketEvent();
        node->event.time = time;
        node->event.kind = kind;
        node->event.owner = owner;
        queue_.push(node);
    }

    // Messages.

    size_t fronts(int32_t m) const { return served(messages_.front_starts, m); }
    size_t behinds(int32_t m) const { return served(messages_.behind_starts, m); }
    static size_t served(const Span<int64_t>& starts, int32_t m) {
        return static_cast<size_t>(m) + 1 < starts.size ? static_cast<size_t>(starts[m + 1] - starts[m]) : 0;
    }
    bool joins(int32_t m) const { return static_cast<size_t>(m) >= messages_.connection.size; }
    int32_t connection_of(int32_t m) const { return joins(m) ? -1 : messages_.connection[m]; }

    static PacketEvent whole(uint8_t kind, int64_t time, int32_t message, size_t stage, int64_t tail) {
        PacketEvent event;
        event.time = time;
        event.kind = kind;
        event.owner = message;
        event.hop = static_cast<uint8_t>(stage);
        event.tail = tail;
        return event;
    }

    void release(int32_t m) {
        const int64_t time = ready_[m] + (joins(m) ? 0 : messages_.delay[m]);
        start[m] = time;
        if (connection_of(m) < 0 && !fronts(m) && !behinds(m)) {
            finish(m, time);
        } else {
            queue_.push(whole(kStart, time, m, 0, time));
        }
    }

    void finish(int32_t m, int64_t time) {
        end[m] = time;
        for (int64_t at = messages_.next_starts[m]; at < messages_.next_starts[m + 1]; ++at) {
            const int32_t follower = messages_.nexts[at];
            ready_[follower] = std::max(ready_[follower], time);
            if (--waits_[follower] == 0) done_.push_back(follower);
        }
    }

    void in_front(const PacketEvent& event) {
        const int32_t m = event.owner;
        const size_t stage = event.hop;
        if (stage < fronts(m)) {
            int64_t begin, head, tail;
            const int32_t resource = messages_.front[messages_.front_starts[m] + static_cast<int64_t>(stage)];
            if (!through(resource, event, messages_.size[m], begin, head, tail)) return;
            if (!stage) start[m] = begin;
            queue_.push(whole(kStart, head, m, stage + 1, tail));
            return;
        }
        const int32_t number = connection_of(m);
        if (number < 0) {
            delivered(m, event.tail);
            return;
        }
        PacketConnection& c = connections_[number];
        left_[m] = c.add(m, messages_.size[m]);
        owed_[m] = rules_.acknowledged && c.reliable ? 2 : 1;
        go_on(c, event.time);
    }

    bool through(int32_t resource, const PacketEvent& event, int64_t size, int64_t& begin, int64_t& head, int64_t& tail) {
        PacketPort& p = ports_.at[resource];
        begin = std::max(p.whole ? event.tail : event.time, p.free);
        const int64_t stop = ports_.stop(resource, begin, size), latency = ports_.latency(resource, begin);
        if (stop >= kForever) return false;
        p.free = p.holds ? stop + latency : stop;
        p.bytes += size;
        head = begin + latency;
        tail = std::max(stop, event.tail) + latency;
        return true;
    }

    void delivered(int32_t m, int64_t time) {
        if (behinds(m)) {
            queue_.push(whole(kBehind, time, m, 0, time));
        } else {
            owed_less(m, time);
        }
    }

    void behind(const PacketEvent& event) {
        const int32_t m = event.owner;
        int64_t begin, head, tail;
        const int32_t resource = messages_.behind[messages_.behind_starts[m] + event.hop];
        if (!through(resource, event, messages_.size[m], begin, head, tail)) return;
        if (static_cast<size_t>(event.hop) + 1 < behinds(m)) {
            queue_.push(whole(kBehind, tail, m, size_t{event.hop} + 1, tail));
        } else {
            owed_less(m, tail);
        }
    }

    void answered(int32_t m, int64_t time) {
        if (rules_.acknowledged) owed_less(m, time);
    }

    void owed_less(int32_t m, int64_t time) {
        done_at_[m] = std::max(done_at_[m], time);
        if (--owed_[m] <= 0) finish(m, done_at_[m]);
    }

    // Packets.

    PacketWay way(const PacketEvent& event) const {
        return {(event.kind == kAck ? paths_.back : paths_.ports).data + event.path, event.length};
    }
    PacketWay way_of(const PacketConnection& c, int32_t path) const {
        return {paths_.ports.data + c.ports_at + path * c.length, c.length};
    }

    // Put a packet at the begin of a path.
    static void follow(PacketEvent& event, const PacketConnection& c, int32_t path) {
        event.path = c.ports_at + path * c.length;
        event.length = c.length;
    }

    void data(PacketNode* node) {
        if (node->event.more <= 0) {
            arrive(node);
            return;
        }
        PacketEvent event = node->event;
        const int64_t apart = connections_[event.owner].apart_ps;
        for (;;) {
            node->event = event;
            node->event.more = 0;
            arrive(node);
            if (event.more <= 0) return;
            event.time += apart;
            event.tail += apart;
            if (!rules_.is_tcp) event.sent += apart;
            ++event.number;
            --event.more;
            const PacketEvent* least = done_.empty() ? queue_.least() : nullptr;
            if (!done_.empty() || (least && *least < event)) {
                queue_.push(event);
                return;
            }
            node = pool_.take();
        }
    }

    // A packet or an answer is at its next port, or at its target. Its node goes on with it, or back to the pool.
    void arrive(PacketNode* node) {
        const PacketEvent& event = node->event;
        const PacketWay path = way(event);
        if (event.hop < path.length) {
            if (ports_.at[path[event.hop]].gate) {
                enqueue(path, node);
                return;
            }
            leave_queue(path, event.hop, event.size, event.time);
            pass_open(path, node);
            return;
        }
        if (event.kind == kAck) {
            answer(connections_[event.owner], event);
        } else {
            leave_queue(path, event.hop, event.size, event.time);
            data(connections_[event.owner], event);
        }
        pool_.give(node);
    }

    void pass_open(const PacketWay& path, PacketNode* node) {
        PacketEvent& event = node->event;
        const int64_t now = event.time;
        const int32_t number = path[event.hop];
        ++ports_.at[number].count;
        const int64_t backlog = ports_.backlog(number, now);
        ports_.note(number, now, backlog);
        if (ports_.is_dropped(number, now, backlog, event.size)) {
            pool_.give(node);
            return;
        }
        if (event.kind == kData && ports_.is_marked(number, now, backlog)) event.says = 1;
        int64_t begin = ports_.begin(number, now);
        if (event.kind == kAck && !event.hop && !rules_.is_tcp) begin = std::min(begin, now + connections_[event.owner].full_ps);
        on_wire(path, node, begin);
    }

    bool on_wire(const PacketWay& path, PacketNode* node, int64_t begin) {
        PacketEvent& event = node->event;
        const int32_t number = path[event.hop];
        PacketPort& port = ports_.at[number];
        const bool bucket = ports_.burst && port.between;
        const int64_t since = bucket ? std::max(begin, port.free) : begin;
        int64_t stop = ports_.stop(number, since, event.size);
        const int64_t latency = ports_.latency(number, begin);
        if (stop >= kForever) {
            port.lost += port.between;
            pool_.give(node);
            return false;
        }
        const int64_t taken = port.holds ? stop + latency : stop;
        port.free = std::max(taken, port.free + (taken - since));
        if (bucket) stop = begin;
        port.bytes += event.size;
        ++hops;
        if (port.changes && ports_.is_lost(number, begin, event.kind == kAck)) {
            pool_.give(node);
            return false;
        }
        event.tail = std::max(stop, event.tail) + latency;
        ++event.hop;
        event.time = event.hop == path.length ? event.tail : begin + latency;
        queue_.push(node);
        return true;
    }

#include "packet_gates.hpp"
#include "packet_ends.hpp"

    const PacketMessages& messages_;
    const PacketPaths& paths_;
    const PacketRules rules_;
    PacketPorts ports_;
    PacketConnections connections_;
    uint8_t kind_ = 0;  // of the event that is served
    int32_t owner_ = 0;
    PacketPool pool_;
    PacketCalendar queue_;
    std::vector<int32_t, LargePages<int32_t>> waits_, left_, owed_;
    std::vector<int32_t> done_;
    std::vector<int64_t> done_at_, ready_;
    std::vector<std::map<int32_t, CarriedAnswer>> carried_;  // by connection and packet
};

}  // namespace ringwright
