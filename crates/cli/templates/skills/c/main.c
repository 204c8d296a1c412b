/*
 * The skill `{{id}}`: counts the words, lines and characters of a text.
 *
 * A program for WASI: the first argument is the tool, the input comes on standard input and the answer goes to standard output, both as
 * JSON. Whoever ends with another code than 0 has failed; what it wrote to standard error says why.
 */
#include "json.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failed(const char *why) {
    fprintf(stderr, "%s\n", why);
    return 1;
}

/* All of standard input. */
static char *input(size_t *length) {
    size_t room = 1 << 16;
    char *bytes = malloc(room);
    *length = 0;
    while (bytes != NULL) {
        ssize_t got = read(STDIN_FILENO, bytes + *length, room - *length);
        if (got == 0) return bytes;
        if (got < 0) break;
        *length += (size_t)got;
        if (*length == room) {
            char *more = realloc(bytes, room *= 2);
            if (more == NULL) break;
            bytes = more;
        }
    }
    free(bytes);
    return NULL;
}

static int count(const struct text *text) {
    size_t words = 0, lines = 0, characters = 0;
    bool in_word = false;
    for (size_t i = 0; i < text->length; i++) {
        char c = text->bytes[i];
        bool is_space = c == ' ' || (c >= '\t' && c <= '\r');
        if (!is_space && !in_word) words++;
        in_word = !is_space;
        if (c == '\n') lines++;
        /* Every byte of a character but the first begins with the bits 10. */
        if (((unsigned char)c & 0xc0) != 0x80) characters++;
    }
    if (text->length > 0 && text->bytes[text->length - 1] != '\n') lines++;
    printf("{\"words\":%zu,\"lines\":%zu,\"characters\":%zu}", words, lines, characters);
    return fflush(stdout) == 0 ? 0 : failed("the answer was not written");
}

int main(int argc, char **argv) {
    if (argc != 2 || strcmp(argv[1], "count") != 0) return failed("there is no such tool");
    size_t length;
    char *json = input(&length);
    if (json == NULL) return failed("the input was not read");
    struct text text;
    const char *wrong = json_text(json, length, "text", &text);
    return wrong != NULL ? failed(wrong) : count(&text);
}
