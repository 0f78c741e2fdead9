/*
 * Compressing and opening bodies with ISA-L (zlib), liblz4 and libzstd.
 *
 *   compress:  one shot into a buffer of the input's size; what does not fit is not worth sending
 *   open:      stepwise into a buffer that doubles up to the caller's limit
 *
 * What other clients need: LZ4 frames of independent blocks (Java's reader knows no others), zlib
 * streams with their checksum, Zstandard frames whose window is at most 64 MiB.
 *
 * Invariants: an opened stream is read to its own end and to the end of the bytes; memory taken is
 * bounded by twice the limit plus the library's window.
 *
 * Threads: any. Working memory is taken per call: a body that is worth compressing costs far more
 * than an allocation. Failure modes: see the header; nothing is left behind.
 */
#include "client/compress.h"

#include <isa-l/igzip_lib.h>
#include <lz4frame.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/record.h"

enum { FIRST_OUT_BYTES = 16 << 10, ZSTD_WINDOW_LOG_MAX = 26 };

const char *compress_type_name(uint32_t sys_flag)
{
    if (!(sys_flag & SYS_COMPRESSED))
        return "none";
    switch (sys_flag & SYS_COMPRESSION_TYPE) {
    case 0:
    case COMPRESS_ZLIB:
        return "zlib";
    case COMPRESS_LZ4:
        return "lz4";
    case COMPRESS_ZSTD:
        return "zstd";
    default:
        return "unknown";
    }
}

/* ---- compressing: each writes at most cap bytes and returns how many, 0: did not fit ---- */

/* ISA-L has levels 0 to 3; each has its own working buffer. */
static size_t zlib_level(int level, uint32_t *isal_level)
{
    static const size_t buffer_bytes[] = {ISAL_DEF_LVL0_DEFAULT, ISAL_DEF_LVL1_DEFAULT,
                                          ISAL_DEF_LVL2_DEFAULT, ISAL_DEF_LVL3_DEFAULT};
    *isal_level = level <= 2 ? 0 : level <= 5 ? 1 : level <= 7 ? 2 : 3;
    return buffer_bytes[*isal_level];
}

static enum tern_code zlib_compress(int level, const uint8_t *bytes, size_t len, uint8_t *dst,
                                    size_t *dst_len)
{
    uint32_t isal_level;
    size_t buffer_bytes = zlib_level(level, &isal_level);
    struct isal_zstream *stream = malloc(sizeof *stream);
    uint8_t *buffer = buffer_bytes ? malloc(buffer_bytes) : NULL;
    enum tern_code code = TERN_NO_MEMORY;
    if (stream && (buffer || buffer_bytes == 0)) {
        isal_deflate_stateless_init(stream);
        stream->level = isal_level;
        stream->level_buf = buffer;
        stream->level_buf_size = (uint32_t)buffer_bytes;
        stream->gzip_flag = IGZIP_ZLIB;
        stream->flush = NO_FLUSH;
        stream->end_of_stream = 1;
        stream->next_in = (uint8_t *)(uintptr_t)bytes;
        stream->avail_in = (uint32_t)len;
        stream->next_out = dst;
        stream->avail_out = (uint32_t)*dst_len;
        bool done = isal_deflate_stateless(stream) == COMP_OK && stream->avail_in == 0;
        *dst_len = stream->total_out;
        code = done ? TERN_OK : TERN_TOO_LARGE;
    }
    free(buffer);
    free(stream);
    return code;
}

static enum tern_code lz4_compress(const uint8_t *bytes, size_t len, uint8_t *dst, size_t *dst_len)
{
    const LZ4F_preferences_t wanted = {.frameInfo = {.blockSizeID = LZ4F_max4MB,
                                                     .blockMode = LZ4F_blockIndependent,
                                                     .contentSize = len}};
    /* The library wants room for the worst case before it begins. */
    size_t bound = LZ4F_compressFrameBound(len, &wanted);
    uint8_t *frame = malloc(bound);
    if (!frame)
        return TERN_NO_MEMORY;
    size_t made = LZ4F_compressFrame(frame, bound, bytes, len, &wanted);
    bool fits = !LZ4F_isError(made) && made <= *dst_len;
    if (fits) {
        memcpy(dst, frame, made);
        *dst_len = made;
    }
    free(frame);
    return fits ? TERN_OK : TERN_TOO_LARGE;
}

static enum tern_code zstd_compress(int level, const uint8_t *bytes, size_t len, uint8_t *dst,
                                    size_t *dst_len)
{
    size_t made = ZSTD_compress(dst, *dst_len, bytes, len, level);
    if (ZSTD_isError(made))
        return TERN_TOO_LARGE;
    *dst_len = made;
    return TERN_OK;
}

enum tern_code compress_body(enum compress_type type, int level, const uint8_t *bytes, size_t len,
                             struct compressed *out)
{
    *out = (struct compressed){.bytes = NULL};
    if (len < 2 || len > COMPRESS_BODY_MAX)
        return TERN_TOO_LARGE;
    size_t made = len - 1;
    uint8_t *dst = malloc(made);
    if (!dst)
        return TERN_NO_MEMORY;
    enum tern_code code = type == COMPRESS_LZ4    ? lz4_compress(bytes, len, dst, &made)
                          : type == COMPRESS_ZSTD ? zstd_compress(level, bytes, len, dst, &made)
                                                  : zlib_compress(level, bytes, len, dst, &made);
    if (code != TERN_OK) {
        free(dst);
        return code;
    }
    uint8_t *shrunk = realloc(dst, made);
    *out = (struct compressed){
        .bytes = shrunk ? shrunk : dst, .len = made, .sys_flag = SYS_COMPRESSED | (uint32_t)type};
    return TERN_OK;
}

/* ---- opening ---- */

/* Output that grows up to `most`; one byte more shows that a stream goes on beyond it. */
struct output {
    uint8_t *bytes;
    size_t len, cap, most;
};

/* Room for at least one byte more. */
static enum tern_code output_room(struct output *out, size_t hint)
{
    if (out->len < out->cap)
        return TERN_OK;
    if (out->len > out->most)
        return TERN_TOO_LARGE;
    size_t cap = out->cap ? out->cap * 2 : hint;
    if (cap < FIRST_OUT_BYTES)
        cap = FIRST_OUT_BYTES;
    if (cap > out->most + 1)
        cap = out->most + 1;
    uint8_t *grown = realloc(out->bytes, cap);
    if (!grown)
        return TERN_NO_MEMORY;
    out->bytes = grown;
    out->cap = cap;
    return TERN_OK;
}

static enum tern_code zlib_open(const uint8_t *bytes, size_t len, struct output *out)
{
    struct inflate_state *state = malloc(sizeof *state);
    if (!state)
        return TERN_NO_MEMORY;
    isal_inflate_init(state);
    state->crc_flag = ISAL_ZLIB;
    state->next_in = (uint8_t *)(uintptr_t)bytes;
    state->avail_in = (uint32_t)len;
    enum tern_code code = TERN_OK;
    while (code == TERN_OK && state->block_state != ISAL_BLOCK_FINISH) {
        code = output_room(out, len * 4);
        if (code != TERN_OK)
            break;
        uint32_t before_in = state->avail_in;
        uint32_t room = (uint32_t)(out->cap - out->len);
        state->next_out = out->bytes + out->len;
        state->avail_out = room;
        if (isal_inflate(state) != ISAL_DECOMP_OK)
            code = TERN_CORRUPT;
        out->len += room - state->avail_out;
        if (state->avail_out == room && state->avail_in == before_in &&
            state->block_state != ISAL_BLOCK_FINISH)
            code = TERN_CORRUPT; /* cut: it asks for more than there is */
    }
    /* It reads ahead: whole bytes that it still holds are none of the stream's. */
    if (code == TERN_OK && (state->avail_in > 0 || state->read_in_length >= 8))
        code = TERN_CORRUPT;
    free(state);
    return code;
}

static enum tern_code lz4_open(const uint8_t *bytes, size_t len, struct output *out)
{
    LZ4F_dctx *context;
    if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION)))
        return TERN_NO_MEMORY;
    enum tern_code code = TERN_OK;
    size_t at = 0;
    for (bool ended = false; code == TERN_OK && !ended;) {
        code = output_room(out, len * 4);
        if (code != TERN_OK)
            break;
        size_t made = out->cap - out->len;
        size_t used = len - at;
        size_t more =
            LZ4F_decompress(context, out->bytes + out->len, &made, bytes + at, &used, NULL);
        if (LZ4F_isError(more) || (more != 0 && made == 0 && used == 0))
            code = TERN_CORRUPT;
        out->len += made;
        at += used;
        ended = more == 0;
    }
    if (code == TERN_OK && at < len)
        code = TERN_CORRUPT;
    LZ4F_freeDecompressionContext(context);
    return code;
}

static enum tern_code zstd_open(const uint8_t *bytes, size_t len, struct output *out)
{
    ZSTD_DCtx *context = ZSTD_createDCtx();
    if (!context)
        return TERN_NO_MEMORY;
    enum tern_code code =
        ZSTD_isError(ZSTD_DCtx_setParameter(context, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG_MAX))
            ? TERN_NO_MEMORY
            : TERN_OK;
    ZSTD_inBuffer in = {.src = bytes, .size = len};
    for (bool ended = false; code == TERN_OK && !ended;) {
        code = output_room(out, len * 4);
        if (code != TERN_OK)
            break;
        ZSTD_outBuffer room = {.dst = out->bytes + out->len, .size = out->cap - out->len};
        size_t before_in = in.pos;
        size_t more = ZSTD_decompressStream(context, &room, &in);
        if (ZSTD_isError(more) || (more != 0 && room.pos == 0 && in.pos == before_in))
            code = TERN_CORRUPT;
        out->len += room.pos;
        ended = more == 0;
    }
    if (code == TERN_OK && in.pos < len)
        code = TERN_CORRUPT;
    ZSTD_freeDCtx(context);
    return code;
}

static enum tern_code open_text(enum tern_code code, uint32_t sys_flag, size_t len, size_t most,
                                struct tern_error *err)
{
    const char *name = compress_type_name(sys_flag);
    if (code == TERN_TOO_LARGE)
        return error_set(err, code,
                         "%zu bytes of %s open to more than %zu, the limit max_body_bytes of who "
                         "reads it",
                         len, name, most);
    if (code == TERN_NO_MEMORY)
        return error_set(err, code, "opening %zu bytes of %s", len, name);
    return error_set(err, code, "%zu bytes that are no whole %s stream", len, name);
}

enum tern_code decompress_body(uint32_t sys_flag, const uint8_t *bytes, size_t len, size_t most,
                               uint8_t **out, size_t *out_len, struct tern_error *err)
{
    struct output output = {.most = most};
    enum tern_code code;
    *out = NULL;
    *out_len = 0;
    switch (sys_flag & SYS_COMPRESSION_TYPE) {
    case 0:
    case COMPRESS_ZLIB:
        code = zlib_open(bytes, len, &output);
        break;
    case COMPRESS_LZ4:
        code = lz4_open(bytes, len, &output);
        break;
    case COMPRESS_ZSTD:
        code = zstd_open(bytes, len, &output);
        break;
    default:
        return error_set(err, TERN_NOT_SUPPORTED,
                         "compression type 0x%x of the body is unknown: a newer client sent it",
                         (unsigned)(sys_flag & SYS_COMPRESSION_TYPE));
    }
    if (code == TERN_OK && output.len > most)
        code = TERN_TOO_LARGE;
    if (code != TERN_OK) {
        free(output.bytes);
        return open_text(code, sys_flag, len, most, err);
    }
    *out = output.bytes;
    *out_len = output.len;
    return TERN_OK;
}
