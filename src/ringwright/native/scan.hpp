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
#include "launcher.hpp"
#include "needles.hpp"

namespace ringwright {

struct Columns {
    std::vector<int32_t> handle, root, global_rank, launch_rank;
    std::vector<uint8_t> op, inplace;
    std::vector<uint64_t> op_count, count, stream;
    std::vector<int16_t> datatype, redop;
    std::vector<double> time_s;
    std::vector<int64_t> line;
    std::vector<int64_t> careful, repaired;  // rows of (line, offset, length)
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
        launch_rank.push_back(static_cast<int32_t>(from.launch_rank));
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
        tail_ = nullptr;
        const char* end = data + size;
        for (const char* at = data; at < end; ++out.lines) {
            const char* line_end = scan_line(data, at, end, first_line + out.lines, out);
            at = line_end == end ? end : line_end + 1;
        }
        return out;
    }

    std::vector<Handle> handles(size_t first) const {
        const std::lock_guard<std::mutex> alone(mutex_);
        if (first >= handles_.size()) return {};
        return {handles_.begin() + static_cast<ptrdiff_t>(first), handles_.end()};
    }

    std::vector<std::string> ops() const {
        const std::lock_guard<std::mutex> alone(mutex_);
        return ops_;
    }

private:
    static constexpr ptrdiff_t kLongestLine = 65536;
    static constexpr ptrdiff_t kLongestCut = 4096;
    static constexpr int kFarthestTail = 6;
    static constexpr size_t kMostOps = 256;  // the op column is one byte

    // Reads the line at `at`; returns its newline, or `end`.
    RINGWRIGHT_HOT const char* scan_line(const char* data, const char* at, const char* end, int64_t line, Columns& out) {
        Cursor cursor{at, end};
        Collective found;
        if (at != tail_ && parse_collective(cursor, found) && cursor.at - at <= kLongestLine) {
            const int op = op_id(found.op);
            if (op >= 0) {
                out.append(found, handle_id(found), static_cast<uint8_t>(op), line);
                return cursor.at;
            }
        }
        return scan_stray(data, at, newline_after(cursor.at, end), end, line, out);
    }

    // Reads a line that is not plainly clean.
    RINGWRIGHT_COLD const char* scan_stray(const char* data, const char* at, const char* line_end, const char* end,
                                           int64_t line, Columns& out) {
        Cursor cursor{at, end};
        Collective found;
        const bool launched = at != tail_ && line_end - at <= kLongestLine && parse_launched(cursor, found);
        const int op = launched ? op_id(found.op) : -1;
        if (op >= 0)
            out.append(found, handle_id(found), static_cast<uint8_t>(op), line);
        else if (at == tail_ || mend(at, line_end, end, line, out))
            out.repaired.insert(out.repaired.end(), {line, at - data, line_end - at});
        else if (needs_care(at, line_end, out))
            out.careful.insert(out.careful.end(), {line, at - data, line_end - at});
        return line_end;
    }

    // A clean line, with or without a launcher's prefixes. The cursor stays inside the line.
    RINGWRIGHT_COLD static bool parse_row(Cursor& cursor, Collective& found) {
        const char* at = cursor.at;
        if (parse_again(cursor, found)) return cursor.at - at <= kLongestLine;
        Cursor launched{at, cursor.end};
        if (!parse_launched(launched, found)) return false;
        cursor = launched;
        return cursor.at - at <= kLongestLine;
    }

    // The commonest cut: the beginning of one clean line, then all of another's; the rest stands on a line soon after.
    // Only handles and operations known already will do: what is made of pieces must introduce nothing.
    bool mend(const char* at, const char* line_end, const char* end, int64_t line, Columns& out) {
        if (line_end - at > kLongestCut) return false;
        Collective whole, joined;
        const char* seam = find_whole(at, line_end, whole);
        const int op = seam == nullptr || seam == at ? -1 : find_op(whole.op);
        if (op < 0) return false;
        Cursor head{at, seam};
        if (parse_again(head, joined)) return false;  // nothing says that it was cut
        std::string text(at, seam);
        const char* tail = find_tail(text, line_end, end, joined);
        if (tail == nullptr) return false;
        out.append(whole, find_handle(whole), static_cast<uint8_t>(op), line);
        out.append(joined, find_handle(joined), static_cast<uint8_t>(find_op(joined.op)), line);
        tail_ = tail;
        return true;
    }

    // Where the whole line begins that ends this one; its host may have run into the cut text before it.
    const char* find_whole(const char* at, const char* line_end, Collective& whole) {
        const std::string_view text(at, static_cast<size_t>(line_end - at));
        const size_t mark = text.rfind(" NCCL INFO ");
        if (mark == std::string_view::npos) return nullptr;
        const char* name_end = before_prefix_numbers(at, at + mark);
        if (name_end == nullptr) return nullptr;
        Cursor cursor{name_end - 1, line_end};
        if (!parse_again(cursor, whole)) return nullptr;
        const char* prefix_end = at + mark;
        const char* start = name_end;
        while (start != at && name_end - start < 255 && (kByteClass[static_cast<unsigned char>(start[-1])] & kHostByte))
            --start;
        for (; start != name_end; ++start) {
            whole.prefix = std::string_view(start, static_cast<size_t>(prefix_end - start));
            if (find_handle(whole) >= 0) return with_stamp(at, start, whole);
        }
        return nullptr;
    }

    // The end of HOST in `HOST:PID:TID [DEV]`, read backwards from the end; null where that does not stand there.
    static const char* before_prefix_numbers(const char* at, const char* from) {
        const char* back = from;
        const auto step = [&](char byte) { return back != at && *--back == byte; };
        const auto number = [&] {
            const char* last = back;
            while (back != at && static_cast<unsigned char>(back[-1] - '0') <= 9) --back;
            return back != last;
        };
        const bool shaped = step(']') && number() && step('[') && step(' ') && number() && step(':') && number() &&
                            step(':') && back != at && (kByteClass[static_cast<unsigned char>(back[-1])] & kHostByte);
        return shaped ? back : nullptr;
    }

    static const char* with_stamp(const char* at, const char* start, Collective& whole) {
        const ptrdiff_t room = start - at < 32 ? start - at : 32;
        if (room < 22 || start[-1] != ' ' || start[-2] != ']') return start;
        const std::string_view before(start - room, static_cast<size_t>(room));
        const size_t bracket = before.rfind('[');
        if (bracket == std::string_view::npos) return start;
        Cursor cursor{start - room + bracket, start};
        double time_s = 0;
        if (!parse_timestamp(cursor, time_s) || cursor.at != start) return start;
        whole.time_s = time_s;
        return start - room + bracket;
    }

    // The line that completes the cut text, among the next few; lines that are clean or say nothing may come between.
    const char* find_tail(std::string& text, const char* line_end, const char* end, Collective& joined) {
        const size_t head = text.size();
        for (int ahead = 0; ahead < kFarthestTail; ++ahead) {
            if (line_end == end || line_end + 1 == end) return nullptr;
            const char* at = line_end + 1;
            Cursor cursor{at, end};
            Collective other;
            const bool clean = parse_row(cursor, other);
            line_end = newline_after(cursor.at, end);
            if (clean) continue;
            if (line_end - at > kLongestCut) return nullptr;
            text.resize(head);
            text.append(at, line_end);
            Cursor whole{text.data(), text.data() + text.size()};
            joined = Collective{};
            if (parse_again(whole, joined) && find_op(joined.op) >= 0 && find_handle(joined) >= 0) return at;
            if (needles_.found_in(at, static_cast<size_t>(line_end - at))) return nullptr;
        }
        return nullptr;
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

    int find_op(std::string_view name) const {
        for (size_t i = 0; i < ops_.size(); ++i)
            if (ops_[i] == name) return static_cast<int>(i);
        return -1;
    }

    int op_id(std::string_view name) {
        const int known = find_op(name);
        if (known >= 0) return known;
        if (ops_.size() == kMostOps) return -1;
        ops_.emplace_back(name);
        return static_cast<int>(ops_.size() - 1);
    }

    static uint64_t handle_hash(const Collective& of) {
        return mix(mix_bytes(of.comm, of.prefix.data(), of.prefix.size()), of.nranks);
    }

    IdTable::Slot& handle_slot(const Collective& of, uint64_t hash) {
        return handle_ids_.locate(hash, [&](uint32_t id) {
            const Handle& known = handles_[id];
            return known.comm == of.comm && known.nranks == static_cast<int32_t>(of.nranks) && known.prefix == of.prefix;
        });
    }

    int32_t find_handle(const Collective& of) {
        const IdTable::Slot& slot = handle_slot(of, handle_hash(of));
        return slot.empty() ? -1 : static_cast<int32_t>(slot.id);
    }

    int32_t handle_id(const Collective& of) {
        const uint64_t hash = handle_hash(of);
        IdTable::Slot& slot = handle_slot(of, hash);
        if (!slot.empty()) return static_cast<int32_t>(slot.id);
        handles_.push_back({std::string(of.prefix), of.comm, static_cast<int32_t>(of.nranks)});
        return static_cast<int32_t>(handle_ids_.fill(slot, hash, handles_.size() - 1));
    }

    NeedleSet needles_;
    std::vector<std::string> ops_;
    std::vector<Handle> handles_;
    IdTable handle_ids_;
    const char* tail_ = nullptr;  // the line that already went into a row
    mutable std::mutex mutex_;
};

}  // namespace ringwright
