/*
 * Bodies: magic 4 | run 8 | stream 4 | number 8 | CRC-32 of everything else 4 | size 4 | contents.
 * The contents follow from run, stream and number, so a whole message of another place cannot pass
 * for this one.
 */
#include <isa-l/crc.h>
#include <string.h>

#include "base/bytes.h"
#include "tools/mqbench/verify.h"

static const uint32_t magic = 0x54564659; /* "TVFY" */
enum { CRC_AT = 24 };

static uint64_t mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static uint64_t seed_of(const struct verify *verify, uint32_t stream, uint64_t number)
{
    return mix(verify->run_id ^ mix(((uint64_t)stream << 40) ^ number));
}

uint64_t verify_draw(const struct verify *verify, uint32_t stream, uint64_t number)
{
    return mix(~seed_of(verify, stream, number));
}

size_t verify_body_size(const struct verify *verify, uint32_t stream, uint64_t number)
{
    /* From half the asked size to the whole of it, so that records have many lengths. */
    size_t most = (size_t)verify->options->size_bytes;
    if (most <= VERIFY_HEADER_BYTES)
        return VERIFY_HEADER_BYTES;
    size_t least = most / 2 > VERIFY_HEADER_BYTES ? most / 2 : VERIFY_HEADER_BYTES;
    return least + seed_of(verify, stream, number) % (most - least + 1);
}

void verify_fill(const struct verify *verify, uint32_t stream, uint64_t number, uint8_t *body,
                 size_t size)
{
    uint64_t x = seed_of(verify, stream, number);
    put_be32(body, magic);
    put_be64(body + 4, verify->run_id);
    put_be32(body + 12, stream);
    put_be64(body + 16, number);
    put_be32(body + CRC_AT, 0);
    put_be32(body + 28, (uint32_t)size);
    for (size_t at = VERIFY_HEADER_BYTES; at < size; at += 8) {
        x = mix(x);
        memcpy(body + at, &x, size - at < 8 ? size - at : 8);
    }
    put_be32(body + CRC_AT, crc32_gzip_refl(0, body, size));
}

int verify_parse(const struct verify *verify, const uint8_t *body, size_t size, uint32_t *stream,
                 uint64_t *number)
{
    static const uint8_t zero[4];
    if (size < VERIFY_HEADER_BYTES || get_be32(body) != magic)
        return 1;
    if (get_be64(body + 4) != verify->run_id)
        return 1;
    *stream = get_be32(body + 12);
    *number = get_be64(body + 16);
    uint32_t crc = crc32_gzip_refl(0, body, CRC_AT);
    crc = crc32_gzip_refl(crc, zero, sizeof zero);
    crc = crc32_gzip_refl(crc, body + CRC_AT + 4, size - CRC_AT - 4);
    return crc == get_be32(body + CRC_AT) && get_be32(body + 28) == size ? 0 : 2;
}
