/* As much of JSON as a tool needs whose input is an object of texts. */
#ifndef JSON_H
#define JSON_H

#include <stddef.h>

/* A text, decoded to UTF-8. It can hold zero bytes, so its length counts. */
struct text {
    char *bytes;
    size_t length;
};

/*
 * Reads the text that an object has under a key. What else is in the object is checked and passed over.
 * Returns NULL, or what is wrong with the input. The text is allocated with malloc.
 */
const char *json_text(const char *json, size_t length, const char *key, struct text *found);

#endif
