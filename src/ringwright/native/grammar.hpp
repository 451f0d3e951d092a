// The grammar of one clean COLL line. Whatever strays from it by a byte is refused here and read elsewhere with care.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

// The one hot call of the parser is worth all of its code in place; every other caller shares a copy.
#if defined(__GNUC__)
#define RINGWRIGHT_HOT [[gnu::always_inline]] inline
#define RINGWRIGHT_COLD [[gnu::noinline]]
#else
#define RINGWRIGHT_HOT inline
#define RINGWRIGHT_COLD
#endif

namespace ringwright {

constexpr uint64_t kInt16Max = 0x7fff;
constexpr uint64_t kInt32Max = 0x7fffffff;

struct Collective {
    std::string_view prefix;  // HOST:PID:TID [DEV]
    std::string_view op;
    uint64_t op_count = 0, sendbuff = 0, recvbuff = 0, count = 0, comm = 0, stream = 0;
    uint64_t datatype = 0, redop = 0, root = 0, nranks = 0;
    int64_t global_rank = -1, launch_rank = -1;
    double time_s = std::numeric_limits<double>::quiet_NaN();
};

enum ByteClass : uint8_t { kHostByte = 1, kLetter = 2 };

constexpr std::array<uint8_t, 256> byte_classes() {
    std::array<uint8_t, 256> classes{};
    for (int c = 'a'; c <= 'z'; ++c) classes[c] = classes[c - 'a' + 'A'] = kHostByte | kLetter;
    for (int c = '0'; c <= '9'; ++c) classes[c] = kHostByte;
    classes['.'] = classes['_'] = classes['-'] = kHostByte;
    return classes;
}

constexpr std::array<int8_t, 256> hex_values() {
    std::array<int8_t, 256> values{};
    for (int c = 0; c < 256; ++c) values[c] = -1;
    for (int c = 0; c < 10; ++c) values['0' + c] = static_cast<int8_t>(c);
    for (int c = 0; c < 6; ++c) values['a' + c] = values['A' + c] = static_cast<int8_t>(10 + c);
    return values;
}

inline constexpr std::array<uint8_t, 256> kByteClass = byte_classes();
inline constexpr std::array<int8_t, 256> kHexValue = hex_values();

// A reading position; every method that returns false may leave it anywhere inside the line, never past its newline.
struct Cursor {
    const char* at;
    const char* end;

    template <size_t N>
    RINGWRIGHT_HOT bool literal(const char (&text)[N]) {
        if (static_cast<size_t>(end - at) < N - 1 || std::memcmp(at, text, N - 1) != 0) return false;
        at += N - 1;
        return true;
    }

    RINGWRIGHT_HOT bool one(char byte) {
        if (at == end || *at != byte) return false;
        ++at;
        return true;
    }

    RINGWRIGHT_HOT bool run_of(uint8_t wanted, ptrdiff_t longest) {
        const char* start = at;
        while (at != end && (kByteClass[static_cast<unsigned char>(*at)] & wanted)) ++at;
        return at != start && at - start <= longest;
    }

    RINGWRIGHT_HOT bool decimal(uint64_t& value, ptrdiff_t longest, uint64_t largest) {
        constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
        const char* start = at;
        value = 0;
        for (; at != end; ++at) {
            const auto digit = static_cast<unsigned char>(*at - '0');
            if (digit > 9) break;
            if (value > kMax / 10 || value * 10 > kMax - digit) return false;
            value = value * 10 + digit;
        }
        return at != start && at - start <= longest && value <= largest;
    }

    RINGWRIGHT_HOT bool hex(uint64_t& value) {
        const char* start = at;
        value = 0;
        for (; at != end; ++at) {
            const int digit = kHexValue[static_cast<unsigned char>(*at)];
            if (digit < 0) break;
            value = (value << 4) | static_cast<uint64_t>(digit);
        }
        return at != start && at - start <= 16;
    }

    RINGWRIGHT_HOT bool pointer(uint64_t& value) {
        if (literal("0x")) return hex(value);
        value = 0;
        return one('0') || literal("(nil)");
    }

    RINGWRIGHT_HOT bool digits(int count, int& value) {
        value = 0;
        for (; count > 0; --count, ++at) {
            if (at == end || static_cast<unsigned char>(*at - '0') > 9) return false;
            value = value * 10 + (*at - '0');
        }
        return true;
    }

    RINGWRIGHT_HOT void trailing_blanks() {
        while (at != end && (*at == ' ' || *at == '\r')) ++at;
    }

    RINGWRIGHT_HOT bool line_end() const { return at == end || *at == '\n'; }
};

struct Calendar {
    int year, month, day, hour, minute, second;

    bool valid() const {
        constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
        if (year < 1 || month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 || second > 59) return false;
        const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        return day <= kDays[month - 1] + (month == 2 && leap ? 1 : 0);
    }

    // Seconds since 1970-01-01 in the proleptic Gregorian calendar; the year is counted from March.
    int64_t seconds() const {
        const int64_t y = month > 2 ? year : year - 1;
        const int64_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
        const int64_t days = y * 365 + y / 4 - y / 100 + y / 400 + day_of_year - 719468;
        return ((days * 24 + hour) * 60 + minute) * 60 + second;
    }
};

inline bool parse_fraction(Cursor& cursor, double& fraction_s) {
    constexpr double kScale[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9};
    fraction_s = 0;
    if (!cursor.one('.')) return true;
    const char* start = cursor.at;
    uint64_t value = 0;
    if (!cursor.decimal(value, 9, 999999999)) return false;
    fraction_s = static_cast<double>(value) / kScale[cursor.at - start];
    return true;
}

// `[YYYY-MM-DD hh:mm:ss(.fraction)?] `; the caller has seen the bracket.
inline bool parse_timestamp(Cursor& cursor, double& time_s) {
    Calendar when{};
    double fraction_s = 0;
    const bool shaped = cursor.one('[') && cursor.digits(4, when.year) && cursor.one('-') &&
                        cursor.digits(2, when.month) && cursor.one('-') && cursor.digits(2, when.day) &&
                        cursor.one(' ') && cursor.digits(2, when.hour) && cursor.one(':') &&
                        cursor.digits(2, when.minute) && cursor.one(':') && cursor.digits(2, when.second) &&
                        parse_fraction(cursor, fraction_s) && cursor.literal("] ");
    if (!shaped || !when.valid()) return false;
    time_s = static_cast<double>(when.seconds()) + fraction_s;
    return true;
}

RINGWRIGHT_HOT bool parse_prefix(Cursor& cursor, std::string_view& prefix) {
    const char* start = cursor.at;
    uint64_t ignored = 0;
    if (!(cursor.run_of(kHostByte, 255) && cursor.one(':') && cursor.decimal(ignored, 10, kInt32Max) &&
          cursor.one(':') && cursor.decimal(ignored, 10, kInt32Max) && cursor.literal(" [") &&
          cursor.decimal(ignored, 10, kInt32Max) && cursor.one(']')))
        return false;
    prefix = std::string_view(start, static_cast<size_t>(cursor.at - start));
    return true;
}

RINGWRIGHT_HOT bool parse_op(Cursor& cursor, std::string_view& op) {
    const char* start = cursor.at;
    if (!cursor.run_of(kLetter, 32)) return false;
    op = std::string_view(start, static_cast<size_t>(cursor.at - start));
    return true;
}

// RCCL may print ` acc POINTER`, a third buffer.
RINGWRIGHT_HOT bool parse_accumulator(Cursor& cursor) {
    uint64_t ignored = 0;
    return !cursor.literal(" acc ") || cursor.pointer(ignored);
}

RINGWRIGHT_HOT bool parse_fields(Cursor& cursor, Collective& line) {
    constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
    return cursor.literal(": opCount ") && cursor.hex(line.op_count) &&
           cursor.literal(" sendbuff ") && cursor.pointer(line.sendbuff) &&
           cursor.literal(" recvbuff ") && cursor.pointer(line.recvbuff) && parse_accumulator(cursor) &&
           cursor.literal(" count ") && cursor.decimal(line.count, 20, kMax) &&
           cursor.literal(" datatype ") && cursor.decimal(line.datatype, 5, kInt16Max) &&
           cursor.literal(" op ") && cursor.decimal(line.redop, 5, kInt16Max) &&
           cursor.literal(" root ") && cursor.decimal(line.root, 10, kInt32Max) &&
           cursor.literal(" comm ") && cursor.pointer(line.comm) &&
           cursor.literal(" [nranks=") && cursor.decimal(line.nranks, 10, kInt32Max) &&
           cursor.literal("] stream ") && cursor.pointer(line.stream);
}

// RCCL adds ` task N globalrank N`.
RINGWRIGHT_HOT bool parse_rccl(Cursor& cursor, int64_t& global_rank) {
    if (!cursor.literal(" task ")) return true;
    uint64_t task = 0, rank = 0;
    if (!(cursor.decimal(task, 10, kInt32Max) && cursor.literal(" globalrank ") && cursor.decimal(rank, 10, kInt32Max)))
        return false;
    global_rank = static_cast<int64_t>(rank);
    return true;
}

// True when the cursor stood at a clean COLL line; it then stands at its newline or at the end of the data.
RINGWRIGHT_HOT bool parse_collective(Cursor& cursor, Collective& line) {
    if (cursor.at != cursor.end && *cursor.at == '[' && !parse_timestamp(cursor, line.time_s)) return false;
    if (!(parse_prefix(cursor, line.prefix) && cursor.literal(" NCCL INFO ") && parse_op(cursor, line.op) &&
          parse_fields(cursor, line) && parse_rccl(cursor, line.global_rank)))
        return false;
    cursor.trailing_blanks();
    return cursor.line_end();
}

RINGWRIGHT_COLD inline bool parse_again(Cursor& cursor, Collective& line) { return parse_collective(cursor, line); }

}  // namespace ringwright
