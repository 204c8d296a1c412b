/* Reads JSON as RFC 8259 has it. The input is UTF-8, which the host sees to. */
#include "json.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 64 };

struct reader {
    const char *at;
    const char *end;
};

static void space(struct reader *in) {
    while (in->at < in->end && (*in->at == ' ' || *in->at == '\t' || *in->at == '\n' || *in->at == '\r')) in->at++;
}

static bool take(struct reader *in, char wanted) {
    space(in);
    if (in->at == in->end || *in->at != wanted) return false;
    in->at++;
    return true;
}

static bool hex4(struct reader *in, uint32_t *value) {
    if (in->end - in->at < 4) return false;
    *value = 0;
    for (int i = 0; i < 4; i++) {
        char c = *in->at++;
        uint32_t digit;
        if (c >= '0' && c <= '9') digit = (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f') digit = (uint32_t)(c - 'a') + 10;
        else if (c >= 'A' && c <= 'F') digit = (uint32_t)(c - 'A') + 10;
        else return false;
        *value = *value << 4 | digit;
    }
    return true;
}

static void put(struct text *out, uint32_t byte) {
    out->bytes[out->length++] = (char)(unsigned char)byte;
}

static void put_character(struct text *out, uint32_t c) {
    if (c < 0x80) {
        put(out, c);
    } else if (c < 0x800) {
        put(out, 0xc0 | c >> 6);
        put(out, 0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        put(out, 0xe0 | c >> 12);
        put(out, 0x80 | (c >> 6 & 0x3f));
        put(out, 0x80 | (c & 0x3f));
    } else {
        put(out, 0xf0 | c >> 18);
        put(out, 0x80 | (c >> 12 & 0x3f));
        put(out, 0x80 | (c >> 6 & 0x3f));
        put(out, 0x80 | (c & 0x3f));
    }
}

/* \uXXXX, or two of them for a character beyond the first 65536. */
static bool escaped_character(struct reader *in, struct text *out) {
    uint32_t c, low;
    if (!hex4(in, &c)) return false;
    if (c >= 0xdc00 && c <= 0xdfff) return false;
    if (c >= 0xd800 && c <= 0xdbff) {
        if (in->end - in->at < 2 || in->at[0] != '\\' || in->at[1] != 'u') return false;
        in->at += 2;
        if (!hex4(in, &low) || low < 0xdc00 || low > 0xdfff) return false;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    put_character(out, c);
    return true;
}

/* A text is never longer than it was in JSON, so one allocation is enough. */
static bool text(struct reader *in, struct text *out) {
    if (!take(in, '"')) return false;
    out->length = 0;
    out->bytes = malloc((size_t)(in->end - in->at) + 1);
    if (out->bytes == NULL) return false;
    while (in->at < in->end) {
        char c = *in->at++;
        if (c == '"') return true;
        if ((unsigned char)c < 0x20) break;
        if (c != '\\') {
            put(out, (unsigned char)c);
            continue;
        }
        if (in->at == in->end) break;
        c = *in->at++;
        if (c == 'u') {
            if (!escaped_character(in, out)) break;
            continue;
        }
        static const char ESCAPES[] = "\"\\/bfnrt", MEANT[] = "\"\\/\b\f\n\r\t";
        const char *known = c == '\0' ? NULL : strchr(ESCAPES, c);
        if (known == NULL) break;
        put(out, (unsigned char)MEANT[known - ESCAPES]);
    }
    free(out->bytes);
    out->bytes = NULL;
    return false;
}

static bool digits(struct reader *in) {
    const char *from = in->at;
    while (in->at < in->end && *in->at >= '0' && *in->at <= '9') in->at++;
    return in->at > from;
}

static bool number(struct reader *in) {
    if (in->at < in->end && *in->at == '-') in->at++;
    bool zero = in->at < in->end && *in->at == '0';
    const char *from = in->at;
    if (!digits(in) || (zero && in->at - from > 1)) return false;
    if (in->at < in->end && *in->at == '.') {
        in->at++;
        if (!digits(in)) return false;
    }
    if (in->at < in->end && (*in->at == 'e' || *in->at == 'E')) {
        in->at++;
        if (in->at < in->end && (*in->at == '+' || *in->at == '-')) in->at++;
        if (!digits(in)) return false;
    }
    return true;
}

static bool word(struct reader *in, const char *wanted) {
    size_t length = strlen(wanted);
    if ((size_t)(in->end - in->at) < length || memcmp(in->at, wanted, length) != 0) return false;
    in->at += length;
    return true;
}

static bool skip(struct reader *in, int level);

static bool skip_text(struct reader *in) {
    struct text passed;
    if (!text(in, &passed)) return false;
    free(passed.bytes);
    return true;
}

static bool skip_members(struct reader *in, char close, int level) {
    if (take(in, close)) return true;
    do {
        if (close == '}' && !(skip_text(in) && take(in, ':'))) return false;
        if (!skip(in, level)) return false;
    } while (take(in, ','));
    return take(in, close);
}

static bool skip(struct reader *in, int level) {
    space(in);
    if (in->at == in->end || level == DEEPEST) return false;
    switch (*in->at) {
    case '"': return skip_text(in);
    case '{': in->at++; return skip_members(in, '}', level + 1);
    case '[': in->at++; return skip_members(in, ']', level + 1);
    case 't': return word(in, "true");
    case 'f': return word(in, "false");
    case 'n': return word(in, "null");
    default: return number(in);
    }
}

const char *json_text(const char *json, size_t length, const char *key, struct text *found) {
    struct reader in = {json, json + length};
    found->bytes = NULL;
    if (!take(&in, '{')) return "the input is no object";
    if (!take(&in, '}')) {
        do {
            struct text name;
            space(&in);
            if (!text(&in, &name)) return "the input is malformed";
            bool wanted = name.length == strlen(key) && memcmp(name.bytes, key, name.length) == 0;
            free(name.bytes);
            if (!take(&in, ':')) return "the input is malformed";
            if (wanted && found->bytes != NULL) return "the input has a key twice";
            space(&in);
            if (!wanted && !skip(&in, 0)) return "the input is malformed";
            if (wanted && !text(&in, found)) return "the input has something else where a text belongs";
        } while (take(&in, ','));
        if (!take(&in, '}')) return "the input is malformed";
    }
    space(&in);
    if (in.at != in.end) return "the input goes on after its end";
    return found->bytes == NULL ? "the input lacks a text" : NULL;
}
