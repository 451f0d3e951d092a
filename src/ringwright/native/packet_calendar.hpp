// The queue of events of the packet loop: wheels of buckets, each bucket a list that is sorted when its turn comes.
//
// The first wheel has a bucket for each slot of time, the next one for each turn of the first, and so on: an event goes to the
// wheel of the highest digit in which its slot differs from now, and moves down when that digit comes. Order is that of
// `PacketEvent`, whatever the width.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <vector>

#include "packet_ports.hpp"

namespace ringwright {

class PacketCalendar {
public:
    // `width` is how many picoseconds share a bucket, about; any value gives the same order. Nodes live in `pool`.
    PacketCalendar(int64_t width, PacketPool& pool) : pool_(pool), wheels_(kWheels) {
        while (shift_ < 50 && (int64_t{2} << shift_) <= width) ++shift_;
    }

    void push(const PacketEvent& event) { push(pool_.take(event)); }

    void push(PacketNode* node) {
        ++size_;
        put(node);
    }

    // Take the least event; null where there is none.
    PacketNode* pop() {
        if (!ready()) return nullptr;
        PacketNode* least = nullptr;
        if (is_late()) {
            least = late_.top().node;
            late_.pop();
        } else {
            least = current_[next_++].node;
        }
        if (scout_ && (scout_ = scout_->next)) __builtin_prefetch(scout_);
        --size_;
        return least;
    }

    // The least event, or none; it stays.
    const PacketEvent* least() {
        if (!ready()) return nullptr;
        return &(is_late() ? late_.top() : current_[next_]).node->event;
    }

    size_t size() const { return size_; }

    // An event that comes some events later, where that is known by now.
    const PacketEvent* soon(size_t ahead) const {
        return next_ + ahead < current_.size() ? &current_[next_ + ahead].node->event : nullptr;
    }

private:
    static constexpr int kDigit = 11, kWheels = 6;
    static constexpr int64_t kBuckets = int64_t{1} << kDigit;

    struct Entry {
        int64_t time;
        uint64_t whose;  // kind and owner
        PacketNode* node;

        explicit Entry(PacketNode* of)
            : time(of->event.time), whose(uint64_t{of->event.kind} << 32 | static_cast<uint32_t>(of->event.owner)), node(of) {}
        bool operator<(const Entry& o) const {
            if (time != o.time) return time < o.time;
            return whose != o.whose ? whose < o.whose : node->event < o.node->event;
        }
        bool operator>(const Entry& o) const { return o < *this; }
    };

    struct Wheel {
        PacketNode* first[kBuckets] = {};
        uint64_t filled[kBuckets / 64] = {};
        uint64_t words = 0;  // those of `filled` that are not 0

        void put(int64_t at, PacketNode* node) {
            node->next = first[at];
            first[at] = node;
            filled[at >> 6] |= uint64_t{1} << (at & 63);
            words |= uint64_t{1} << (at >> 6);
        }

        PacketNode* take(int64_t at) {
            PacketNode* all = first[at];
            first[at] = nullptr;
            if (!(filled[at >> 6] &= ~(uint64_t{1} << (at & 63)))) words &= ~(uint64_t{1} << (at >> 6));
            return all;
        }

        // The next bucket behind `at` that holds something, or -1.
        int64_t after(int64_t at) const {
            const int64_t word = at >> 6;
            const uint64_t here = filled[word] & (~uint64_t{1} << (at & 63));
            if (here) return word * 64 + __builtin_ctzll(here);
            const uint64_t later = words & (~uint64_t{1} << word);
            if (!later) return -1;
            const int64_t next = __builtin_ctzll(later);
            return next * 64 + __builtin_ctzll(filled[next]);
        }
    };

    int64_t slot_of(const PacketNode* node) const { return (node->event.time >> shift_) + 1; }
    bool is_late() const { return !late_.empty() && (next_ >= current_.size() || late_.top() < current_[next_]); }
    bool ready() { return next_ < current_.size() || !late_.empty() || advance(); }

    void put(PacketNode* node) {
        const int64_t slot = slot_of(node);
        if (slot <= slot_) {
            late_.push(Entry(node));
            return;
        }
        const int wheel = (63 - __builtin_clzll(static_cast<uint64_t>(slot ^ slot_))) / kDigit;
        wheels_[wheel].put((slot >> (wheel * kDigit)) & (kBuckets - 1), node);
    }

    bool advance() {
        current_.clear();
        next_ = 0;
        for (int wheel = 0; wheel < kWheels;) {
            const int shift = wheel * kDigit;
            const int64_t at = wheels_[wheel].after((slot_ >> shift) & (kBuckets - 1));
            if (at < 0) {
                ++wheel;
                continue;
            }
            slot_ = ((slot_ >> shift >> kDigit << kDigit) | at) << shift;
            for (PacketNode* node = wheels_[wheel].take(at); node;) {
                PacketNode* next = node->next;
                if (!wheel || slot_of(node) == slot_) {
                    current_.emplace_back(node);
                } else {
                    put(node);
                }
                node = next;
            }
            if (!current_.empty()) {
                const int64_t then = wheels_[0].after(slot_ & (kBuckets - 1));
                scout_ = then < 0 ? nullptr : wheels_[0].first[then];
                sort();
                return true;
            }
            wheel = 0;
        }
        return false;
    }

    // A list holds what came last first; most of it came in order.
    void sort() {
        if (current_.size() == 1) return;
        std::reverse(current_.begin(), current_.end());
        if (current_.size() > 32) {
            if (!std::is_sorted(current_.begin(), current_.end())) std::sort(current_.begin(), current_.end());
            return;
        }
        for (size_t i = 1; i < current_.size(); ++i) {
            const Entry each = current_[i];
            size_t at = i;
            for (; at && each < current_[at - 1]; --at) current_[at] = current_[at - 1];
            current_[at] = each;
        }
    }

    PacketPool& pool_;
    int shift_ = 0;
    int64_t slot_ = 0;
    size_t next_ = 0, size_ = 0;
    PacketNode* scout_ = nullptr;  // goes through the next bucket ahead of its turn, so that its nodes are in the cache by then
    std::vector<Entry> current_;
    std::vector<Wheel> wheels_;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> late_;
};

}  // namespace ringwright
