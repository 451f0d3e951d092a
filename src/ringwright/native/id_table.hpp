// An open-addressing index from a hash to a dense id. The records themselves live in the caller's vector,
// so one table serves operation records, communicator handles, signatures and totals alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

namespace ringwright {

inline uint64_t mix(uint64_t seed, uint64_t value) {
    uint64_t hash = (seed ^ value) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
    hash *= 0xd6e8feb86659fd93u;
    return hash ^ (hash >> 29);
}

inline uint64_t mix_bytes(uint64_t seed, const char* data, size_t size) {
    uint64_t hash = mix(seed, size);
    uint64_t word = 0;
    for (; size >= 8; data += 8, size -= 8) {
        std::memcpy(&word, data, 8);
        hash = mix(hash, word);
    }
    word = 0;
    std::memcpy(&word, data, size);
    return mix(hash, word);
}

class IdTable {
public:
    struct Slot {
        uint32_t tag = 0;
        uint32_t id = kEmpty;
        bool empty() const { return id == kEmpty; }
    };

    IdTable() : slots_(64) {}

    // The slot whose id satisfies `same`, or the empty slot where such an id belongs. Valid until the next locate.
    template <class Same>
    Slot& locate(uint64_t hash, Same same) {
        if (used_ * 3 >= slots_.size() * 2) grow();
        const uint32_t tag = tag_of(hash);
        const size_t mask = slots_.size() - 1;
        size_t at = tag & mask;
        while (!slots_[at].empty() && !(slots_[at].tag == tag && same(slots_[at].id))) at = (at + 1) & mask;
        return slots_[at];
    }

    // Called after the caller has stored its record, so a failed allocation leaves no id without a record.
    uint32_t fill(Slot& slot, uint64_t hash, size_t id) {
        if (id >= kEmpty) throw std::length_error("more than 4294967294 distinct entries");
        slot.tag = tag_of(hash);
        slot.id = static_cast<uint32_t>(id);
        ++used_;
        return slot.id;
    }

    void prefetch(uint64_t hash) const {
#if defined(__GNUC__)
        __builtin_prefetch(&slots_[tag_of(hash) & (slots_.size() - 1)]);
#else
        (void)hash;
#endif
    }

private:
    static constexpr uint32_t kEmpty = 0xffffffffu;

    static uint32_t tag_of(uint64_t hash) { return static_cast<uint32_t>(hash >> 16); }

    void grow() {
        std::vector<Slot> wider(slots_.size() * 2);
        const size_t mask = wider.size() - 1;
        for (const Slot& slot : slots_) {
            if (slot.empty()) continue;
            size_t at = slot.tag & mask;
            while (!wider[at].empty()) at = (at + 1) & mask;
            wider[at] = slot;
        }
        slots_ = std::move(wider);
    }

    std::vector<Slot> slots_;
    size_t used_ = 0;
};

}  // namespace ringwright
