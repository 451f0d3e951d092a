// Connections and their control; engines/packets/connection.py and control.py define what they do.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "packet_ports.hpp"

namespace ringwright {

enum PacketControl : uint8_t { kFixed, kReno, kCubic, kBbr, kDcqcn, kDelay };
enum PacketState : uint8_t { kOut, kArrived, kMissing };
constexpr double kSecond = 1e12, kFirstWindow = 10.0, kLeast = 2.0, kCubicC = 0.4, kCubicBeta = 0.7;
constexpr double kG = 1.0 / 256, kAddShare = 0.001, kMoreShare = 0.01, kLeastShare = 0.001;
constexpr int64_t kStepPs = 55'000'000, kNoticePs = 50'000'000;
constexpr int32_t kFastSteps = 5;
constexpr double kTargetTrips = 2.0, kDelayBeta = 0.8, kMostCut = 0.5;
enum BbrPhase : uint8_t { kStartup, kDrain, kProbe };
constexpr double kLocalShare = 1e12 / 1024.0, kLeastLocal = 2.0, kMostLocalBytes = 4.0 * (1 << 20), kEarly = 2.0, kLater = 1.2;
constexpr int32_t kKernelBytes = 832;
constexpr double kHighGain = 2.885, kFullGrowth = 1.25, kBbrWindow = 2.0;
constexpr int32_t kFullRounds = 3, kRounds = 10, kCycles = 8;
constexpr double kCycle[kCycles] = {1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0};

struct SentPacket {
    int64_t at = 0, delivered = 0, delivered_at = 0;
    uint8_t state = kOut;
    bool again = false;
};

struct CarriedAnswer {  // of the other direction; number -1: none
    int32_t number = -1, more = 0;
    int64_t sent = 0;
};

struct PacketPart {  // a message of a connection
    int32_t first, message;
    int64_t size;
};

// Messages of a connection; the first one, most often the only one, lies in the connection itself.
class PacketParts {
public:
    size_t size() const { return count_; }
    const PacketPart& operator[](int32_t at) const { return many_ ? (*many_)[static_cast<size_t>(at)] : one_; }

    void push_back(const PacketPart& part) {
        if (count_ == 1) many_ = std::make_unique<std::vector<PacketPart>>(1, one_);
        if (count_++) {
            many_->push_back(part);
        } else {
            one_ = part;
        }
    }

    // The part that holds a packet.
    int32_t of(int32_t packet) {
        if (!many_) return 0;
        const std::vector<PacketPart>& all = *many_;
        const auto holds = [&](size_t at) { return all[at].first <= packet && (at + 1 == count_ || packet < all[at + 1].first); };
        if (holds(hint_)) return static_cast<int32_t>(hint_);
        const auto after = std::upper_bound(all.begin(), all.end(), packet,
                                            [](int32_t value, const PacketPart& each) { return value < each.first; });
        hint_ = static_cast<uint32_t>(after - all.begin()) - 1;
        return static_cast<int32_t>(hint_);
    }

private:
    PacketPart one_{};
    std::unique_ptr<std::vector<PacketPart>> many_;
    uint32_t count_ = 0, hint_ = 0;
};

// Times in order, of which those that have passed are forgotten.
class LeavingPackets {
public:
    size_t size() const { return times_.size() - gone_; }
    int64_t operator[](size_t at) const { return times_[gone_ + at]; }

    void add(int64_t time, int64_t now) {
        if (time <= now) return;
        after(now);
        times_.push_back(time);
    }

    // How many are later than now.
    int64_t after(int64_t now) {
        while (gone_ < times_.size() && times_[gone_] <= now) ++gone_;
        if (gone_ == times_.size()) {
            times_.clear();
            gone_ = 0;
        } else if (2 * gone_ > times_.size()) {
            times_.erase(times_.begin(), times_.begin() + static_cast<std::ptrdiff_t>(gone_));
            gone_ = 0;
        }
        return static_cast<int64_t>(size());
    }

private:
    std::vector<int64_t> times_;
    size_t gone_ = 0;
};

// Fields stand by who needs them at once, in lines of a cache: a program may have a million connections.
struct alignas(64) PacketConnection {
    // Sender: what is under way. Paths of a connection are equally long and lie one behind the other.
    int32_t number = 0, ports_at = 0, n_paths = 1, most_window = 0;
    int32_t una = 0, nxt = 0, end = 0, ever = 0, arrived = 0, local = 0, told_part = 0;
    uint8_t length = 0, control = kFixed, phase = kStartup;
    bool recovering = false, restarting = false, limited = false, waits_to_send = false;
    bool probing = false, probed = false, slowed = false;
    // Sender: when.
    int64_t local_until = 0, send_at = 0, sent_at = 0, retry_at = kForever, doubt_at = kForever, timer_at = kForever;
    int64_t wakes_next = kForever, wakes_later = kForever;  // events of its timer in the queue; there may be more, to be ignored
    // Both: packets and messages.
    std::vector<int32_t> missing;  // sorted
    PacketParts parts;
    int32_t payload = 1;
    uint8_t back_length = 0;
    bool reliable = true, refused = false;
    // Receiver.
    std::vector<int32_t> early;  // sorted
    int64_t heard_at = 0, heard_sent = 0;
    int32_t expected = 0, part = 0, unanswered = 0, at_once = 0, heard_number = 0, back_at = 0;
    // Sender of what is answered: what was measured, and what the path is like.
    double srtt = 0, rttvar = 0, line_ps = 0, cwnd = 0, gap_ps = 0;
    int64_t trip_ps = 0, apart_ps = 0;
    int32_t backoff = 0, retries = 0;
    // Sender: what went by, and the rate.
    std::pair<int64_t, int32_t> newest{-1, -1};
    int64_t came = 0, went = 0, alpha_at = 0, faster_at = 0, full_ps = 0;
    double alpha = 1.0, target_ps = 0;
    // What is needed less often.
    std::vector<SentPacket> records;  // of packets from `record_base` on
    int32_t record_base = 0, high = -1, recover = 0, most_out = 0, usage_end = 0, used = 0, fork = 0, partner = -1;
    int32_t wire = 1, steps = 0;
    int64_t doubt_from = 0, used_at = 0, notice_at = 0;
    double prior = 0, ssthresh = 0, most_cwnd = 0, origin = 0, turn_s = 0, friendly = 0, bandwidth = 0, full_bandwidth = 0;
    int64_t epoch = 0, cut_at = 0, cycle_at = 0, round_end = 0, least_trip = 0, delivered = 0, delivered_at = 0;
    int32_t cycle = 0, round = 0, full_rounds = 0;
    std::vector<std::pair<int32_t, double>> bandwidths;
    LeavingPackets leaving;  // of TCP: when those that wait in front of their own NIC begin to leave

    int32_t add(int32_t message, int64_t size) {
        const int64_t packets = reliable ? std::max<int64_t>(1, (size + payload - 1) / payload) : 1;
        parts.push_back({end, message, size});
        end += static_cast<int32_t>(packets);
        return static_cast<int32_t>(packets);
    }

    int32_t last_of(int32_t at) const {
        return (static_cast<size_t>(at) + 1 < parts.size() ? parts[at + 1].first : end) - 1;
    }

    int32_t part_of(int32_t packet) { return parts.of(packet); }

    int64_t bytes_of(int32_t packet, int32_t at) const {
        if (!reliable) return parts[at].size;
        return std::min<int64_t>(payload, parts[at].size - int64_t{packet - parts[at].first} * payload);
    }

    int64_t pipe() const { return int64_t{nxt} - una - arrived - static_cast<int64_t>(missing.size()); }

    SentPacket* record(int32_t packet) {
        const int64_t index = int64_t{packet} - record_base;
        return index >= 0 && index < static_cast<int64_t>(records.size()) ? &records[index] : nullptr;
    }

    void forget_before(int32_t packet) {
        const size_t gone = static_cast<size_t>(packet - record_base);
        if (gone < records.size() && (gone < 16 || 4 * gone < records.size())) return;
        records.erase(records.begin(), records.begin() + static_cast<std::ptrdiff_t>(std::min(gone, records.size())));
        record_base = packet;
    }

    // Small queues of TCP; engines/packets/local.py says where the numbers come from.

    int64_t local_most(bool again) const {
        const double held = static_cast<double>(payload + kKernelBytes);
        const double limit = std::max(kLeastLocal * held, std::min(pacing() * kLocalShare * payload, kMostLocalBytes));
        return static_cast<int64_t>(std::ceil((again ? 2.0 : 1.0) * limit / held));
    }

    int64_t waiting(int64_t now) { return leaving.after(now); }

    // Control.

    void begin() {
        ssthresh = 1e18;
        if (control == kReno || control == kCubic || control == kBbr) {
            srtt = static_cast<double>(trip_ps);
            rttvar = srtt / 2.0;
        }
        if (control == kReno || control == kCubic) {
            cwnd = std::max(kFirstWindow, static_cast<double>(trip_ps) / std::max(line_ps * wire, 1e-9));
        } else if (control == kBbr) {
            cwnd = kFirstWindow;
        } else {
            cwnd = static_cast<double>(most_window);
        }
        gap_ps = line_ps;
    }

    void acked(int64_t packets, int64_t now, int64_t trip, const SentPacket* latest, bool clean) {
        const double count = static_cast<double>(packets);
        if (control == kBbr) {
            bbr_acked(packets, now, trip, latest);
        } else if (control == kDelay) {
            delay_acked(count, now, trip);
        } else if ((control == kReno || control == kCubic) && recovering && !restarting) {
            reduced(packets, clean);
        } else if (control == kReno || control == kCubic) {
            used_at = now;
            if (!is_limited()) return;
            if (cwnd < ssthresh) {
                cwnd = std::min(cwnd + count, ssthresh);
            } else if (control == kReno) {
                cwnd += count / cwnd;
            } else {
                cubic_acked(count, now);
            }
        }
    }

    bool is_limited() const { return limited || (cwnd < ssthresh && cwnd < 2.0 * most_out); }

    void woken(int64_t now, int64_t rto) {
        int64_t silent = now - sent_at;
        if ((control != kReno && control != kCubic) || silent <= rto) return;
        const double least = std::min(kFirstWindow, cwnd);
        ssthresh = std::max(ssthresh, 0.75 * cwnd);
        silent -= rto;
        while (silent > 0 && cwnd > least) {
            cwnd /= 2.0;
            silent -= rto;
        }
        cwnd = std::max(cwnd, least);
        used = 0;
        used_at = now;
    }

    void sent(int64_t now, int64_t rto, bool now_limited) {
        const int32_t out = nxt - una;
        if (una >= usage_end || now_limited || (!limited && out > most_out)) {
            limited = now_limited;
            most_out = out;
            usage_end = nxt;
        }
        if (is_limited()) {
            used = 0;
            used_at = now;
            return;
        }
        used = std::max(used, out);
        if ((control == kReno || control == kCubic) && now - used_at >= rto) {
            const double full = std::max(static_cast<double>(used), kFirstWindow);
            if (full < cwnd && !recovering) {
                ssthresh = std::max(ssthresh, 0.75 * cwnd);
                cwnd = (cwnd + full) / 2.0;
            }
            used = 0;
            used_at = now;
        }
    }

    void lost() {
        if (control != kReno && control != kCubic) return;
        if (control == kCubic) {
            most_cwnd = cwnd < most_cwnd ? cwnd * (1.0 + kCubicBeta) / 2.0 : cwnd;
            epoch = 0;
        }
        ssthresh = std::max(cwnd * (control == kCubic ? kCubicBeta : 0.5), kLeast);
        prior = cwnd;
        came = went = 0;
    }

    void reduced(int64_t packets, bool clean) {
        const int64_t under_way = pipe();
        came += packets;
        const int64_t less = static_cast<int64_t>(ssthresh) - under_way;
        int64_t send = 0;
        if (less < 0) {
            send = static_cast<int64_t>(std::ceil(ssthresh * static_cast<double>(came) / prior)) - went;
        } else {
            send = std::min(less, std::max(came - went, packets) + (clean ? 1 : 0));
        }
        cwnd = static_cast<double>(under_way + std::max<int64_t>(send, went ? 0 : 1));
    }

    void doubted() {
        if ((control == kReno || control == kCubic) && !restarting) reduced(1, false);
    }

    void recovered() {
        if ((control == kReno || control == kCubic) && !restarting) cwnd = ssthresh;
    }

    void timed_out() {
        if (control == kReno || control == kCubic) {
            if (!retries) lost();
            cwnd = 1.0;
        } else if (control == kDelay) {
            cwnd = std::max(cwnd * kMostCut, 1.0);
        }
    }

    int64_t window() const {
        if (control == kFixed || control == kDcqcn) return most_window;
        return std::max<int64_t>(1, std::min<int64_t>(static_cast<int64_t>(cwnd), most_window));
    }

    double spaced(int64_t now) {
        if (control == kDcqcn) {
            dcqcn_until(now);
            return slowed ? gap_ps : 0.0;
        }
        if (control == kBbr && bandwidth > 0.0) return 1.0 / (pacing() * wire);
        return 0.0;
    }

    void noticed(int64_t now) {
        dcqcn_until(now);
        if (!slowed) {
            slowed = true;
            gap_ps = line_ps;
            alpha = 1.0;
        }
        target_ps = gap_ps;
        gap_ps = std::min(gap_ps / (1.0 - alpha / 2.0), line_ps / kLeastShare);
        alpha = (1.0 - kG) * alpha + kG;
        steps = 0;
        alpha_at = faster_at = now + kStepPs;
    }

private:
    void cubic_acked(double count, int64_t now) {
        if (!epoch) {
            epoch = now;
            friendly = cwnd;
            origin = std::max(most_cwnd, cwnd);
            turn_s = cube_root((origin - cwnd) / kCubicC);
        }
        const double away = static_cast<double>(now + trip_ps - epoch) / kSecond - turn_s;
        const double target = origin + kCubicC * (away * away * away);
        if (target > cwnd) {
            cwnd += count * (target - cwnd) / cwnd;
        } else {
            cwnd += count * 0.01 / cwnd;
        }
        friendly += count * (3.0 * (1.0 - kCubicBeta) / (1.0 + kCubicBeta)) / friendly;
        cwnd = std::max(cwnd, friendly);
    }

    static double cube_root(double value) {
        if (value <= 0.0) return 0.0;
        double root = value > 1.0 ? value : 1.0;
        for (int i = 0; i < 80; ++i) {
            const double nearer = (2.0 * root + value / (root * root)) / 3.0;
            if (nearer >= root) break;
            root = nearer;
        }
        return root;
    }

    void delay_acked(double count, int64_t now, int64_t trip) {
        const double target = kTargetTrips * static_cast<double>(trip_ps), took = static_cast<double>(trip);
        if (took <= target) {
            if (limited) cwnd += cwnd >= 1.0 ? count / cwnd : count;
        } else if (static_cast<double>(now - cut_at) > srtt) {
            cwnd *= std::max(1.0 - kDelayBeta * (took - target) / took, kMostCut);
            cut_at = now;
        }
        cwnd = std::min(std::max(cwnd, 1.0), static_cast<double>(most_window));
    }

    void dcqcn_until(int64_t now) {
        while (slowed) {
            if (std::min(alpha_at, faster_at) > now) return;
            if (alpha_at <= faster_at) {
                alpha *= 1.0 - kG;
                alpha_at += kStepPs;
            } else {
                faster_at += kStepPs;
                dcqcn_faster();
            }
        }
    }

    void dcqcn_faster() {
        ++steps;
        double target = 1.0 / target_ps;
        if (steps > kFastSteps) {
            target += (steps > 2 * kFastSteps ? kMoreShare : kAddShare) / line_ps;
            target = std::min(target, 1.0 / line_ps);
            target_ps = 1.0 / target;
        }
        gap_ps = 2.0 / (target + 1.0 / gap_ps);
        if (gap_ps <= line_ps * 1.001) {
            slowed = false;
            gap_ps = line_ps;
        }
    }

    double pacing() const {
        if (control == kBbr) return bandwidth > 0.0 ? bandwidth * gain() : kHighGain * cwnd / std::max(srtt, 1.0);
        const double ratio = cwnd < ssthresh / 2.0 ? kEarly : kLater;
        return ratio * std::max(cwnd, static_cast<double>(nxt - una)) / std::max(srtt, 1.0);
    }

    double gain() const {
        if (phase == kStartup) return kHighGain;
        return phase == kDrain ? 1.0 / kHighGain : kCycle[cycle];
    }

    void bbr_acked(int64_t packets, int64_t now, int64_t trip, const SentPacket* latest) {
        delivered += packets;
        delivered_at = now;
        if (!latest) return;
        if (trip && (!least_trip || trip < least_trip)) least_trip = trip;
        if (latest->delivered >= round_end) {
            ++round;
            round_end = delivered;
            bbr_round();
        }
        const int64_t elapsed = now - latest->delivered_at;
        if (elapsed > 0) {
            bbr_measured(static_cast<double>(delivered - latest->delivered) / static_cast<double>(elapsed));
        }
        const double under_way = bandwidth * static_cast<double>(least_trip);
        if (phase == kDrain && static_cast<double>(pipe()) <= under_way) {
            phase = kProbe;
            cycle = 2;
            cycle_at = now;
        }
        if (phase == kProbe && now - cycle_at > least_trip) {
            cycle = (cycle + 1) % kCycles;
            cycle_at = now;
        }
        cwnd = std::max((phase == kStartup ? kHighGain : kBbrWindow) * under_way + 3.0, 4.0);
    }

    void bbr_measured(double now) {
        while (!bandwidths.empty() && bandwidths.back().second <= now) bandwidths.pop_back();
        bandwidths.emplace_back(round, now);
        while (bandwidths.front().first < round - kRounds) bandwidths.erase(bandwidths.begin());
        bandwidth = bandwidths.front().second;
    }

    void bbr_round() {
        if (phase != kStartup) return;
        if (bandwidth >= full_bandwidth * kFullGrowth) {
            full_bandwidth = bandwidth;
            full_rounds = 0;
            return;
        }
        if (++full_rounds >= kFullRounds) phase = kDrain;
    }
};

using PacketConnections = std::vector<PacketConnection, LargePages<PacketConnection>>;

}  // namespace ringwright
