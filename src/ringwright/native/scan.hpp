// One pass over a chunk of an NCCL log: clean COLL lines become columns, doubtful lines spans, the rest is counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar.hpp"
#include "id_table.hpp"
#include "needles.hpp"

namespace ringwright {

struct Columns {
    std::vector<int32_t> handle, root, global_rank;
    std::vector<uint8_t> op, inplace;
    std::vector<uint64_t> op_count, count, stream;
    std::vector<int16_t> datatype, redop;
    std::vector<double> time_s;
    std::vector<int64_t> line;
    std::vector<int64_t> careful;  // rows of (line, offset, length)
    int64_t lines = 0, blank = 0, other = 0;

    void append(const Collective& from, int32_t handle_id, uint8_t op_id, int64_t at_line) {
        handle.push_back(handle_id);
        op.push_back(op_id);
        op_count.push_back(from.op_count);
        count.push_back(from.count);
        datatype.push_back(static_cast<int16_t>(from.datatype));
        redop.push_back(static_cast<int16_t>(from.redop));
        root.push_back(static_cast<int32_t>(from.root));
        global_rank.push_back(static_cast<int32_t>(from.global_rank));
        time_s.push_back(from.time_s);
        line.push_back(at_line);
        stream.push_back(from.stream);
        inplace.push_back(from.sendbuff == from.recvbuff ? 1 : 0);
    }
};

struct Handle {
    std::string prefix;
    uint64_t comm;
    int32_t nranks;
};

class Scanner {
public:
    explicit Scanner(std::vector<std::string> needles) : needles_(std::move(needles)) {}

    Columns scan(const char* data, size_t size, int64_t first_line) {
        const std::lock_guard<std::mutex> alone(mutex_);
        Columns out;
        const char* end = data + size;
        for (const char* at = data; at < end; ++out.lines) {
            const char* line_end = scan_line(data, at, end, first_line + out.lines, out);
            at = line_end == end ? end : line_end + 1;
        }
        return out;
    }

    std::vector<Handle> handles() const {
        const std::lock_guard<std::mutex> alone(mutex_);
        return handles_;
    }

    std::vector<std::string> ops() const {
        const std::lock_guard<std::mutex> alone(mutex_);
        return ops_;
    }

private:
    static constexpr ptrdiff_t kLongestLine = 65536;
    static constexpr size_t kMostOps = 256;  // the op column is one byte

    // Reads the line at `at`; returns its newline, or `end`.
    const char* scan_line(const char* data, const char* at, const char* end, int64_t line, Columns& out) {
        Cursor cursor{at, end};
        Collective found;
        if (parse_collective(cursor, found) && cursor.at - at <= kLongestLine) {
            const int op = op_id(found.op);
            if (op >= 0) {
                out.append(found, handle_id(found), static_cast<uint8_t>(op), line);
                return cursor.at;
            }
        }
        const char* line_end = newline_after(cursor.at, end);
        if (needs_care(at, line_end, out)) out.careful.insert(out.careful.end(), {line, at - data, line_end - at});
        return line_end;
    }

    static const char* newline_after(const char* at, const char* end) {
        const void* newline = at == end ? nullptr : std::memchr(at, '\n', static_cast<size_t>(end - at));
        return newline ? static_cast<const char*>(newline) : end;
    }

    bool needs_care(const char* at, const char* line_end, Columns& out) const {
        if (line_end - at > kLongestLine) return true;
        Cursor cursor{at, line_end};
        cursor.trailing_blanks();
        if (cursor.at == line_end) {
            ++out.blank;
            return false;
        }
        if (needles_.found_in(at, static_cast<size_t>(line_end - at))) return true;
        ++out.other;
        return false;
    }

    int op_id(std::string_view name) {
        for (size_t i = 0; i < ops_.size(); ++i)
            if (ops_[i] == name) return static_cast<int>(i);
        if (ops_.size() == kMostOps) return -1;
        ops_.emplace_back(name);
        return static_cast<int>(ops_.size() - 1);
    }

    int32_t handle_id(const Collective& of) {
        const auto nranks = static_cast<int32_t>(of.nranks);
        const uint64_t hash = mix(mix_bytes(of.comm, of.prefix.data(), of.prefix.size()), of.nranks);
        IdTable::Slot& slot = handle_ids_.locate(hash, [&](uint32_t id) {
            const Handle& known = handles_[id];
            return known.comm == of.comm && known.nranks == nranks && known.prefix == of.prefix;
        });
        if (!slot.empty()) return static_cast<int32_t>(slot.id);
        handles_.push_back({std::string(of.prefix), of.comm, nranks});
        return static_cast<int32_t>(handle_ids_.fill(slot, hash, handles_.size() - 1));
    }

    NeedleSet needles_;
    std::vector<std::string> ops_;
    std::vector<Handle> handles_;
    IdTable handle_ids_;
    mutable std::mutex mutex_;
};

}  // namespace ringwright
