/*
 * Compressed bodies in RocketMQ's three formats: a zlib stream, an LZ4 frame, a Zstandard frame.
 *
 *   sysFlag   0x001 compressed | 0x100 LZ4, 0x200 ZSTD, 0x300 ZLIB; no type: ZLIB (older clients)
 *
 * The producer compresses, the broker stores what it gets, the consumer opens. Opening is bounded:
 * the output never grows beyond the caller's limit, whatever the stream claims.
 *
 * Threads: any; nothing is shared. Neither function blocks.
 */
#ifndef CLIENT_COMPRESS_H
#define CLIENT_COMPRESS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum compress_type {
    COMPRESS_NONE = 0,
    COMPRESS_LZ4 = 0x100,
    COMPRESS_ZSTD = 0x200,
    COMPRESS_ZLIB = 0x300
};

enum {
    COMPRESS_LEVEL_MAX = 9,
    COMPRESS_LEVEL_DEFAULT = 5,
    COMPRESS_THRESHOLD_DEFAULT = 4096,
    COMPRESS_BODY_MAX = 64 << 20 /* the largest body that any producer may send */
};

/* What the library made, on the heap; the caller's: free(bytes). */
struct compressed {
    uint8_t *bytes;
    size_t len;
    uint32_t sys_flag; /* SYS_COMPRESSED with the type */
};

/*
 * Compresses len bytes (at most COMPRESS_BODY_MAX). level 0…9 from fast to small; LZ4 has one
 * speed, as in RocketMQ. TERN_OK: *out is filled. TERN_TOO_LARGE: it would not become smaller;
 * TERN_NO_MEMORY; *out is then empty. Both mean: send it as it is.
 */
MUST_CHECK enum tern_code compress_body(enum compress_type type, int level, const uint8_t *bytes,
                                        size_t len, struct compressed *out);

/*
 * Opens a body that sys_flag calls compressed. *out (the caller's, free()) gets *out_len bytes, at
 * least one byte of memory even when that is 0. TERN_CORRUPT: damaged, cut, or followed by other
 * bytes; TERN_TOO_LARGE: more than `most` bytes; TERN_NOT_SUPPORTED: an unknown type;
 * TERN_NO_MEMORY. The text names type, sizes and the limit.
 */
MUST_CHECK enum tern_code decompress_body(uint32_t sys_flag, const uint8_t *bytes, size_t len,
                                          size_t most, uint8_t **out, size_t *out_len,
                                          struct tern_error *err);

/* "zlib", "lz4", "zstd", "none", "unknown". */
const char *compress_type_name(uint32_t sys_flag);

#endif
