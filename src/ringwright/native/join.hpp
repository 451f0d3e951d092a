// Joins the records of many members into logical operations, whatever the order in which they arrive.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "id_table.hpp"

namespace ringwright {

constexpr int32_t kMostMembers = 1 << 20;

struct Signature {
    int32_t group, op;
    uint64_t count;
    int16_t datatype, redop;
    int32_t root;

    bool operator==(const Signature& other) const {
        return group == other.group && op == other.op && count == other.count && datatype == other.datatype &&
               redop == other.redop && root == other.root;
    }

    uint64_t hash() const {
        const auto types = uint64_t{static_cast<uint16_t>(datatype)} << 16 | static_cast<uint16_t>(redop);
        const auto where = uint64_t{static_cast<uint32_t>(group)} << 32 | static_cast<uint32_t>(root);
        return mix(mix(where, count), types << 32 | static_cast<uint32_t>(op));
    }
};

struct Total {
    uint32_t signature;
    int32_t member;
    int64_t records;
    uint64_t first_op_count, last_op_count;
};

// Bit sets that start as one word inside their owner and move to a shared pool of power-of-two spans when they widen.
struct Bits {
    uint64_t word_or_offset = 0;
    uint16_t words = 1;      // up to the highest bit that is set
    uint8_t span_class = 0;  // 0: the word itself; k: 2^k words in the pool
};

class BitPool {
public:
    // Sets a bit; false when it was set before.
    bool set(Bits& bits, int32_t index) {
        const size_t word = static_cast<size_t>(index) / 64;
        if (word >> bits.span_class) widen(bits, word + 1);
        uint64_t& place = data(bits)[word];
        const uint64_t mask = uint64_t{1} << (index % 64);
        if (place & mask) return false;
        place |= mask;
        bits.words = std::max(bits.words, static_cast<uint16_t>(word + 1));
        return true;
    }

    const uint64_t* data(const Bits& bits) const {
        return bits.span_class ? &pool_[bits.word_or_offset] : &bits.word_or_offset;
    }

private:
    uint64_t* data(Bits& bits) { return bits.span_class ? &pool_[bits.word_or_offset] : &bits.word_or_offset; }

    void widen(Bits& bits, size_t needed) {
        Bits wider = bits;
        while (needed > size_t{1} << wider.span_class) ++wider.span_class;
        wider.word_or_offset = take(wider.span_class);
        std::copy_n(data(bits), size_t{1} << bits.span_class, &pool_[wider.word_or_offset]);
        if (bits.span_class) free_[bits.span_class].push_back(bits.word_or_offset);
        bits = wider;
    }

    uint64_t take(uint8_t span_class) {
        const size_t size = size_t{1} << span_class;
        std::vector<uint64_t>& spare = free_[span_class];
        if (spare.empty()) {
            pool_.resize(pool_.size() + size);
            return pool_.size() - size;
        }
        const uint64_t offset = spare.back();
        spare.pop_back();
        std::fill_n(&pool_[offset], size, 0);
        return offset;
    }

    std::vector<uint64_t> pool_;
    std::array<std::vector<uint64_t>, 16> free_;
};

struct Entry {
    uint64_t op_count;
    uint32_t signature, occurrence;
    Bits members;
    uint32_t members_seen;
};
static_assert(sizeof(Entry) <= 40, "an entry is kept for every logical operation of a job");

struct Repeat {
    uint32_t first_entry;
    int32_t member;
    uint32_t next_occurrence;
};

// A copy of everything a Joiner knows, column by column.
struct JoinTables {
    std::vector<int32_t> group, op, root;
    std::vector<uint64_t> count;
    std::vector<int16_t> datatype, redop;

    std::vector<int32_t> entry_signature, members_seen;
    std::vector<uint64_t> op_count;
    std::vector<uint32_t> occurrence;

    std::vector<uint64_t> words;
    std::vector<int64_t> offsets;

    std::vector<int32_t> total_signature, member;
    std::vector<int64_t> records;
    std::vector<uint64_t> first_op_count, last_op_count;
};

template <class T, class Row, class Get>
std::vector<T> column_of(const std::vector<Row>& rows, Get get) {
    std::vector<T> values;
    values.reserve(rows.size());
    for (const Row& row : rows) values.push_back(static_cast<T>(get(row)));
    return values;
}

class Joiner {
public:
    // Columns of n records: At is any callable from a row number to a value of the named type.
    template <class SignatureAt, class MemberAt, class OpCountAt>
    std::vector<int64_t> add(size_t n, SignatureAt signature_at, MemberAt member_at, OpCountAt op_count_at) {
        for (size_t i = 0; i < n; ++i)
            if (member_at(i) < 0 || member_at(i) >= kMostMembers)
                throw std::invalid_argument("a member is not in [0, 1048576): number the members of a group from 0");
        const std::lock_guard<std::mutex> alone(mutex_);
        std::vector<int64_t> ids(n);
        std::array<Key, kBatch> keys;
        for (size_t start = 0; start < n; start += kBatch) {
            const size_t size = std::min(kBatch, n - start);
            for (size_t i = 0; i < size; ++i) {
                keys[i] = key(signature_id(signature_at(start + i)), op_count_at(start + i), 0);
                entry_ids_.prefetch(keys[i].hash);
            }
            for (size_t i = 0; i < size; ++i) {
                const int32_t member = member_at(start + i);
                ids[start + i] = place(keys[i], member);
                count(keys[i], member);
            }
        }
        return ids;
    }

    JoinTables tables() const {
        const std::lock_guard<std::mutex> alone(mutex_);
        JoinTables out;
        copy_signatures(out);
        copy_entries(out);
        copy_member_bits(out);
        copy_totals(out);
        return out;
    }

private:
    static constexpr size_t kBatch = 32;  // rows whose table slots are fetched from memory together

    struct Key {
        uint64_t op_count, hash;
        uint32_t signature, occurrence;
    };

    static Key key(uint32_t signature, uint64_t op_count, uint32_t occurrence) {
        const uint64_t low = static_cast<uint64_t>(signature) << 32 | occurrence;
        return {op_count, mix(mix(0, op_count), low), signature, occurrence};
    }

    uint32_t signature_id(const Signature& signature) {
        const uint64_t hash = signature.hash();
        IdTable::Slot& slot = signature_ids_.locate(hash, [&](uint32_t id) { return signatures_[id] == signature; });
        if (!slot.empty()) return slot.id;
        signatures_.push_back(signature);
        return signature_ids_.fill(slot, hash, signatures_.size() - 1);
    }

    uint32_t entry_id(const Key& of) {
        IdTable::Slot& slot = entry_ids_.locate(of.hash, [&](uint32_t id) {
            const Entry& known = entries_[id];
            return known.op_count == of.op_count && known.signature == of.signature &&
                   known.occurrence == of.occurrence;
        });
        if (!slot.empty()) return slot.id;
        entries_.push_back({of.op_count, of.signature, of.occurrence, Bits{}, 0});
        return entry_ids_.fill(slot, of.hash, entries_.size() - 1);
    }

    bool mark(uint32_t entry, int32_t member) {
        const bool fresh = pool_.set(entries_[entry].members, member);
        entries_[entry].members_seen += fresh;
        return fresh;
    }

    uint32_t place(const Key& first, int32_t member) {
        const uint32_t base = entry_id(first);
        if (mark(base, member)) return base;
        const uint32_t again = entry_id(key(first.signature, first.op_count, next_occurrence(base, member)));
        mark(again, member);
        return again;
    }

    // How often the member has shown this base key before; kept only from the second time on.
    uint32_t next_occurrence(uint32_t base, int32_t member) {
        const uint64_t hash = mix(1, static_cast<uint64_t>(base) << 32 | static_cast<uint32_t>(member));
        IdTable::Slot& slot = repeat_ids_.locate(hash, [&](uint32_t id) {
            return repeats_[id].first_entry == base && repeats_[id].member == member;
        });
        if (!slot.empty()) return repeats_[slot.id].next_occurrence++;
        repeats_.push_back({base, member, 2});
        repeat_ids_.fill(slot, hash, repeats_.size() - 1);
        return 1;
    }

    void count(const Key& record, int32_t member) {
        const uint64_t hash = mix(2, static_cast<uint64_t>(record.signature) << 32 | static_cast<uint32_t>(member));
        IdTable::Slot& slot = total_ids_.locate(hash, [&](uint32_t id) {
            return totals_[id].signature == record.signature && totals_[id].member == member;
        });
        if (slot.empty()) {
            totals_.push_back({record.signature, member, 0, record.op_count, 0});
            total_ids_.fill(slot, hash, totals_.size() - 1);
        }
        Total& total = totals_[slot.id];
        ++total.records;
        total.last_op_count = record.op_count;
    }

    void copy_signatures(JoinTables& out) const {
        out.group = column_of<int32_t>(signatures_, [](const Signature& row) { return row.group; });
        out.op = column_of<int32_t>(signatures_, [](const Signature& row) { return row.op; });
        out.count = column_of<uint64_t>(signatures_, [](const Signature& row) { return row.count; });
        out.datatype = column_of<int16_t>(signatures_, [](const Signature& row) { return row.datatype; });
        out.redop = column_of<int16_t>(signatures_, [](const Signature& row) { return row.redop; });
        out.root = column_of<int32_t>(signatures_, [](const Signature& row) { return row.root; });
    }

    void copy_entries(JoinTables& out) const {
        out.entry_signature = column_of<int32_t>(entries_, [](const Entry& row) { return row.signature; });
        out.op_count = column_of<uint64_t>(entries_, [](const Entry& row) { return row.op_count; });
        out.occurrence = column_of<uint32_t>(entries_, [](const Entry& row) { return row.occurrence; });
        out.members_seen = column_of<int32_t>(entries_, [](const Entry& row) { return row.members_seen; });
    }

    void copy_member_bits(JoinTables& out) const {
        out.offsets.reserve(entries_.size() + 1);
        out.offsets.push_back(0);
        for (const Entry& entry : entries_) {
            const uint64_t* first = pool_.data(entry.members);
            out.words.insert(out.words.end(), first, first + entry.members.words);
            out.offsets.push_back(static_cast<int64_t>(out.words.size()));
        }
    }

    void copy_totals(JoinTables& out) const {
        out.total_signature = column_of<int32_t>(totals_, [](const Total& row) { return row.signature; });
        out.member = column_of<int32_t>(totals_, [](const Total& row) { return row.member; });
        out.records = column_of<int64_t>(totals_, [](const Total& row) { return row.records; });
        out.first_op_count = column_of<uint64_t>(totals_, [](const Total& row) { return row.first_op_count; });
        out.last_op_count = column_of<uint64_t>(totals_, [](const Total& row) { return row.last_op_count; });
    }

    std::vector<Signature> signatures_;
    std::vector<Entry> entries_;
    std::vector<Repeat> repeats_;
    std::vector<Total> totals_;
    IdTable signature_ids_, entry_ids_, repeat_ids_, total_ids_;
    BitPool pool_;
    mutable std::mutex mutex_;
};

}  // namespace ringwright
