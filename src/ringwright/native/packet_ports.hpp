// Ports of the packet loop; engines/packets/ports.py defines what they do, and both agree to the picosecond.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "engine_events.hpp"
#include "large_pages.hpp"

namespace ringwright {

constexpr int64_t kEndless = int64_t{1} << 60;
constexpr uint64_t kStep = 0x9E3779B97F4A7C15ull;
constexpr double kPauseAt = 0.5, kResumeAt = 0.25, kMarkFrom = 0.1, kMarkAll = 0.4, kMarkShare = 0.2;
enum PacketGate : uint8_t { kDrop, kPause, kCredit };
enum PacketDraw : uint64_t { kLost = 1, kMarked = 2, kDropped = 3 };
constexpr int64_t kShares = 16, kBars = 64 * kShares;

inline uint64_t mixed(uint64_t state) {
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9ull;
    state = (state ^ (state >> 27)) * 0x94D049BB133111EBull;
    return state ^ (state >> 31);
}

inline double share_of(uint64_t number) { return static_cast<double>(number >> 11) * 0x1p-53; }

inline int64_t bar(int64_t size) {
    if (size < kShares) return size;
    const int octave = 59 - __builtin_clzll(static_cast<uint64_t>(size));
    return (octave + 1) * kShares + (size >> octave) - kShares;
}

enum PacketKind : uint8_t { kPausing, kPort, kData, kAck, kStart, kBehind, kTimer };
enum PacketSays : uint8_t { kPlain, kNotice, kRefusal };

struct PacketEvent {
    int64_t time = 0;
    int64_t sent = 0;
    int64_t tail = 0;
    int64_t size = 0;
    int32_t owner = 0;
    int32_t number = 0;
    int32_t more = 0;
    int32_t path = 0;  // where its ports begin among all
    uint8_t kind = 0, hop = 0, length = 0;  // ports on its path
    uint8_t says = 0;  // of a packet: whether it is marked

    bool operator<(const PacketEvent& o) const {
        if (time != o.time) return time < o.time;
        if (kind != o.kind) return kind < o.kind;
        if (owner != o.owner) return owner < o.owner;
        if (number != o.number) return number < o.number;
        if (hop != o.hop) return hop < o.hop;
        if (sent != o.sent) return sent < o.sent;
        if (more != o.more) return more < o.more;
        if (tail != o.tail) return tail < o.tail;
        if (size != o.size) return size < o.size;
        if (path != o.path) return path < o.path;
        return says < o.says;
    }
    bool operator>(const PacketEvent& o) const { return o < *this; }
};

// An event in a list: of a bucket, of a queue, or of nodes to be had.
struct PacketNode {
    PacketEvent event;
    PacketNode* next = nullptr;
};

class PacketPool {
public:
    PacketNode* take(const PacketEvent& event) {
        PacketNode* node = take();
        node->event = event;
        return node;
    }

    // A node that holds something old.
    PacketNode* take() {
        if (!free_) grow();
        PacketNode* node = free_;
        free_ = node->next;
        return node;
    }

    void give(PacketNode* node) {
        node->next = free_;
        free_ = node;
    }

private:
    static constexpr size_t kFew = 1024, kMany = 65536;

    void grow() {
        chunks_.emplace_back(chunks_.empty() ? kFew : std::min(kMany, 2 * chunks_.back().size()));
        for (size_t i = chunks_.back().size(); i--;) give(&chunks_.back()[i]);
    }

    PacketNode* free_ = nullptr;
    std::vector<std::vector<PacketNode, LargePages<PacketNode>>> chunks_;
};

// Packets that wait, first come, first served.
struct PacketQueue {
    PacketNode *first = nullptr, *last = nullptr;

    bool empty() const { return !first; }
    void push(PacketNode* node) {
        node->next = nullptr;
        (first ? last->next : first) = node;
        last = node;
    }
    PacketNode* pop() {
        PacketNode* node = first;
        first = node->next;
        return node;
    }
};

struct TimedRate {
    int64_t time;
    double byte_ps;
};
struct TimedLoss {
    int64_t time;
    double data, ack;
};
struct TimedSize {
    int64_t time, bytes;
};

// One of the queues of a gated port: what waits in it, and what of this link lies at its far end.
struct PacketLane {
    PacketQueue queue;
    int64_t held = 0;
    bool paused = false, told = false;
};

// Fields stand by who needs them at once, in lines of a cache.
struct alignas(64) PacketPort {
    int64_t free = 0;
    double byte_ps = 0;
    int64_t latency = 0, buffer = 0, queued = 0;
    int32_t first_lane = 0, leaving = -1, waiting = 0;  // packets
    uint8_t lanes = 1, last = 0, gate = 0;
    bool holds = false, between = false, whole = false, changes = false, blocked = false;
    bool busy = false, silent = false;  // silent: no event tells when a busy port is free, for nothing waits
    PacketQueue answers;  // of a gated port's own host, which go first
    uint64_t count = 0, draws = 0;
    int64_t bin_end = -1, bin_most = 0, most = 0, bytes = 0;
    int64_t bin = -1, drops = 0, lost = 0, pauses = 0, marked = 0;
};

// What changes over time at few ports.
struct PacketChanges {
    std::vector<TimedRate> rates;
    std::vector<Delay> delays;
    std::vector<TimedLoss> losses;
    std::vector<TimedSize> buffers;
};

struct QueueSample {
    int64_t bin, port, bytes;
    bool operator<(const QueueSample& o) const {
        if (bin != o.bin) return bin < o.bin;
        if (port != o.port) return port < o.port;
        return bytes < o.bytes;
    }
};

class PacketPorts {
public:
    std::vector<PacketPort> at;
    std::vector<PacketChanges> changes;  // by port, empty where nothing changes anywhere
    std::vector<PacketLane> lanes;  // of gated ports, port after port
    std::vector<int64_t> bars = std::vector<int64_t>(kBars);
    std::vector<QueueSample> samples;
    int64_t bin_ps = 1;
    bool marks = false;
    int64_t burst = 0;

    PacketLane& lane(const PacketPort& port, int32_t number) { return lanes[static_cast<size_t>(port.first_lane + number)]; }
    const PacketLane& lane(const PacketPort& port, int32_t number) const {
        return lanes[static_cast<size_t>(port.first_lane + number)];
    }
    const PacketLane& lane_at(const PacketPort& port, int32_t hop) const { return lane(port, std::min(hop, port.lanes - 1)); }
    PacketLane& lane_at(const PacketPort& port, int32_t hop) { return lane(port, std::min(hop, port.lanes - 1)); }

    const PacketChanges* changes_of(int32_t port) const { return at[port].changes ? &changes[port] : nullptr; }

    int64_t latency(int32_t port, int64_t time) const {
        const PacketChanges* c = changes_of(port);
        return c ? latency_at(at[port].latency, c->delays, time) : at[port].latency;
    }

    int64_t buffer(int32_t port, int64_t time) const {
        int64_t now = at[port].buffer;
        if (const PacketChanges* c = changes_of(port)) {
            for (const TimedSize& each : c->buffers) {
                if (each.time <= time) now = each.bytes;
            }
        }
        return now;
    }

    double rate(int32_t port, int64_t time) const {
        double now = at[port].byte_ps;
        if (const PacketChanges* c = changes_of(port)) {
            for (const TimedRate& each : c->rates) {
                if (each.time <= time) now = each.byte_ps;
            }
        }
        return now;
    }

    int64_t stop(int32_t port, int64_t begin, int64_t size) const {
        double byte_ps = at[port].byte_ps;
        const PacketChanges* c = changes_of(port);
        if (!c || c->rates.empty()) {
            return std::isinf(byte_ps) ? kForever : ended(begin, static_cast<double>(size) * byte_ps);
        }
        int64_t now = begin;
        double left = static_cast<double>(size);
        for (const TimedRate& each : c->rates) {
            if (each.time > now) {
                if (!std::isinf(byte_ps)) {
                    const int64_t by = ended(now, left * byte_ps);
                    if (by <= each.time) return by;
                    left -= static_cast<double>(each.time - now) / byte_ps;
                    if (at[port].between && std::isinf(each.byte_ps)) return kForever;
                } else if (at[port].between) {
                    return kForever;
                }
                now = each.time;
            }
            byte_ps = each.byte_ps;
        }
        return std::isinf(byte_ps) ? kForever : ended(now, left * byte_ps);
    }

    int64_t begin(int32_t port, int64_t time) const { return std::max(time, at[port].free - credit(port, time)); }

    int64_t credit(int32_t port, int64_t time) const {
        if (!burst || !at[port].between) return 0;
        const double byte_ps = rate(port, time);
        return std::isinf(byte_ps) ? 0 : static_cast<int64_t>(static_cast<double>(burst) * byte_ps);
    }

    double drawn(int32_t port, uint64_t kind) const {
        return share_of(mixed(at[port].draws + at[port].count * kStep + kind));
    }

    bool is_lost(int32_t port, int64_t time, bool ack) {
        const PacketChanges* c = changes_of(port);
        if (!c || c->losses.empty()) return false;
        double share = 0.0;
        for (const TimedLoss& each : c->losses) {
            if (each.time <= time) share = ack ? each.ack : each.data;
        }
        if (share <= 0.0 || drawn(port, kLost) >= share) return false;
        ++at[port].lost;
        return true;
    }

    bool is_dropped(int32_t port, int64_t time, int64_t backlog, int64_t size) {
        const int64_t room = buffer(port, time) - backlog - size;
        const auto lot = [&] { return static_cast<int64_t>(drawn(port, kDropped) * static_cast<double>(size)); };
        if (room >= 0 && (!backlog || room >= size || room >= lot())) return false;
        ++at[port].drops;
        return true;
    }

    bool is_marked(int32_t port, int64_t time, int64_t backlog) {
        if (!marks) return false;
        const int64_t size = buffer(port, time);
        if (size >= kEndless) return false;
        const double low = static_cast<double>(size) * kMarkFrom, high = static_cast<double>(size) * kMarkAll;
        const double now = static_cast<double>(backlog);
        if (now <= low) return false;
        if (now < high && drawn(port, kMarked) >= (now - low) / (high - low) * kMarkShare) return false;
        ++at[port].marked;
        return true;
    }

    int64_t backlog(int32_t port, int64_t time) const {
        const PacketPort& p = at[port];
        if (p.gate) return p.queued;
        const int64_t waiting = p.free - credit(port, time) - time;
        if (waiting <= 0) return 0;
        const double byte_ps = p.changes ? rate(port, time) : p.byte_ps;
        return byte_ps <= 0.0 || std::isinf(byte_ps) ? 0 : static_cast<int64_t>(static_cast<double>(waiting) / byte_ps);
    }

    void note(int32_t port, int64_t time, int64_t backlog) {
        PacketPort& p = at[port];
        if (p.buffer >= kEndless) return;
        ++bars[bar(backlog)];
        p.most = std::max(p.most, backlog);
        if (time >= p.bin_end) {
            const int64_t number = time / bin_ps;
            close_bin(port);
            p.bin = number;
            p.bin_end = (number + 1) * bin_ps;
            p.bin_most = 0;
        }
        p.bin_most = std::max(p.bin_most, backlog);
    }

    void close_bin(int32_t port) {
        const PacketPort& p = at[port];
        if (p.bin >= 0 && p.bin_most) samples.push_back({p.bin, port, p.bin_most});
    }

    int64_t share_of_buffer(int32_t port, int64_t time, double share) const {
        const int64_t size = buffer(port, time);
        return size >= kEndless ? kEndless : static_cast<int64_t>(static_cast<double>(size) * share);
    }

private:
    // When a positive duration, rounded up, is over; a conversion rounds down, at once on every processor.
    static int64_t ended(int64_t begin, double duration) {
        if (!(duration < static_cast<double>(kForever - begin))) return kForever;
        const int64_t whole = static_cast<int64_t>(duration);
        return begin + whole + (static_cast<double>(whole) < duration);
    }
};

}  // namespace ringwright
