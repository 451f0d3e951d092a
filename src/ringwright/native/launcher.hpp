// What launchers put in front of every line: ranks, container time stamps, colours. Peeled off, a clean line is left.
#pragma once

#include <cstdint>
#include <limits>

#include "grammar.hpp"

namespace ringwright {

struct Launch {
    int64_t rank = -1;
    double time_s = std::numeric_limits<double>::quiet_NaN();
};

constexpr int kMostLaunchers = 4;
constexpr ptrdiff_t kLongestName = 97;  // of a container, before its bar

inline bool digit_run(Cursor& cursor, ptrdiff_t longest) {
    const char* start = cursor.at;
    while (cursor.at != cursor.end && static_cast<unsigned char>(*cursor.at - '0') <= 9) ++cursor.at;
    return cursor.at != start && cursor.at - start <= longest;
}

inline bool blank(Cursor& cursor) { return cursor.one(' ') || cursor.one('\t'); }

inline bool word_run(Cursor& cursor, bool path, ptrdiff_t longest) {
    const char* start = cursor.at;
    while (cursor.at != cursor.end) {
        const char byte = *cursor.at;
        const bool word = (kByteClass[static_cast<unsigned char>(byte)] & kHostByte) && byte != '-';
        if (!word && !(path && (byte == '-' || byte == '/'))) break;
        ++cursor.at;
    }
    return cursor.at != start && cursor.at - start <= longest;
}

// Microseconds, since no clock of a launcher is finer; digits beyond the sixth are dropped.
inline bool parse_micros(Cursor& cursor, int64_t& micros) {
    micros = 0;
    if (!cursor.one('.') && !cursor.one(',')) return true;
    const char* start = cursor.at;
    if (!digit_run(cursor, 9)) return false;
    for (int place = 0; place < 6; ++place)
        micros = micros * 10 + (start + place < cursor.at ? start[place] - '0' : 0);
    return true;
}

inline bool parse_zone(Cursor& cursor, int64_t& offset_s) {
    offset_s = 0;
    if (cursor.one('Z')) return true;
    const bool east = cursor.one('+');
    if (!east && !cursor.one('-')) return true;
    int hours = 0, minutes = 0;
    if (!cursor.digits(2, hours)) return false;
    cursor.one(':');
    if (!cursor.digits(2, minutes) || hours > 23 || minutes > 59) return false;
    offset_s = (east ? 60 : -60) * static_cast<int64_t>(hours * 60 + minutes);
    return true;
}

// `YYYY-MM-DDThh:mm:ss.fff+hh:mm stdout F ` of container runtimes, or the stamp alone.
inline bool peel_stamp(Cursor& cursor, Launch& launch) {
    constexpr int64_t kExact = int64_t{1} << 53;  // beyond it a double loses microseconds
    Calendar when{};
    int64_t micros = 0, offset_s = 0;
    const bool shaped = cursor.digits(4, when.year) && cursor.one('-') && cursor.digits(2, when.month) &&
                        cursor.one('-') && cursor.digits(2, when.day) && (cursor.one('T') || cursor.one(' ')) &&
                        cursor.digits(2, when.hour) && cursor.one(':') && cursor.digits(2, when.minute) &&
                        cursor.one(':') && cursor.digits(2, when.second) && parse_micros(cursor, micros) &&
                        parse_zone(cursor, offset_s);
    if (!shaped || !when.valid()) return false;
    micros += (when.seconds() - offset_s) * 1000000;
    if (micros <= -kExact || micros >= kExact) return false;
    Cursor stream = cursor;
    if ((stream.literal(" stdout ") || stream.literal(" stderr ")) && (stream.one('F') || stream.one('P')) &&
        stream.one(' ')) {
        cursor = stream;
    } else {
        cursor.one(':');
        if (!blank(cursor)) return false;
        while (blank(cursor)) {
        }
    }
    launch.time_s = static_cast<double>(micros) / 1e6;
    return true;
}

// `[1,12]<stdout>:` of mpirun --tag-output.
inline bool peel_tag(Cursor& cursor, Launch& launch) {
    uint64_t rank = 0;
    if (!(cursor.one('[') && digit_run(cursor, 10) && cursor.one(',') && cursor.decimal(rank, 10, kInt32Max) &&
          cursor.one(']')))
        return false;
    if (!cursor.literal("<stdout>") && !cursor.literal("<stderr>")) cursor.literal("<stddiag>");
    if (!cursor.one(':')) return false;
    blank(cursor);
    launch.rank = static_cast<int64_t>(rank);
    return true;
}

// `[default3]:` and `[3] [rank3]:`, the latter without the rank.
inline bool peel_default(Cursor& cursor, Launch&) {
    if (cursor.literal("[default")) return digit_run(cursor, 10) && cursor.literal("]:");
    if (!(cursor.one('[') && digit_run(cursor, 10) && cursor.literal("] "))) return false;
    Cursor ahead = cursor;
    return ahead.literal("[rank");
}

inline bool peel_torchrun(Cursor& cursor, Launch& launch) {
    uint64_t rank = 0;
    if (!(cursor.literal("[rank") && cursor.decimal(rank, 10, kInt32Max) && cursor.literal("]:"))) return false;
    blank(cursor);
    launch.rank = static_cast<int64_t>(rank);
    return true;
}

// `12: ` of srun --label.
inline bool peel_label(Cursor& cursor, Launch& launch) {
    uint64_t rank = 0;
    if (!(cursor.decimal(rank, 6, kInt32Max) && cursor.literal(": "))) return false;
    launch.rank = static_cast<int64_t>(rank);
    return true;
}

// `(Worker pid=615, ip=10.0.0.1) ` of Ray.
inline bool peel_ray(Cursor& cursor, Launch&) {
    if (!cursor.one('(')) return false;
    Cursor named = cursor;
    if (word_run(named, false, kLongestName) && named.one(' ')) cursor = named;
    if (!(cursor.literal("pid=") && digit_run(cursor, 20))) return false;
    if (cursor.literal(", ip="))
        while (cursor.at != cursor.end && *cursor.at != ')' && *cursor.at != '\n') ++cursor.at;
    return cursor.literal(") ");
}

inline bool peel_colour(Cursor& cursor, Launch&) {
    if (!cursor.literal("\x1b[")) return false;
    while (cursor.at != cursor.end && (static_cast<unsigned char>(*cursor.at - '0') <= 9 || *cursor.at == ';'))
        ++cursor.at;
    return cursor.one('m');
}

inline bool peel_container(Cursor& cursor, Launch&) {
    return word_run(cursor, true, kLongestName) && cursor.literal(" | ");
}

inline bool peel_one(Cursor& cursor, Launch& launch) {
    constexpr bool (*kPeelers[])(Cursor&, Launch&) = {peel_stamp, peel_tag, peel_default,   peel_torchrun,
                                                      peel_label, peel_ray, peel_colour, peel_container};
    for (const auto peeler : kPeelers) {
        Cursor trial = cursor;
        if (!peeler(trial, launch)) continue;
        cursor = trial;
        return true;
    }
    return false;
}

// True when a launcher's prefixes stand before a clean COLL line; its own time stamp goes before the launcher's.
RINGWRIGHT_COLD inline bool parse_launched(Cursor& cursor, Collective& line) {
    Launch launch;
    int peeled = 0;
    while (peeled < kMostLaunchers && peel_one(cursor, launch)) ++peeled;
    if (peeled == 0) return false;
    line = Collective{};
    if (!parse_again(cursor, line)) return false;
    line.launch_rank = launch.rank;
    if (line.time_s != line.time_s) line.time_s = launch.time_s;
    return true;
}

}  // namespace ringwright
