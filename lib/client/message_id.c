/*
 * Unique ids without a lock.
 *
 * Time and counter are one number, `last`. A new id is last + 1, or the time of now with counter 0
 * when that is greater. So ids never repeat: 65,536 in one millisecond run over into the next one,
 * and a wall clock that was set back only makes the ids a little newer than they are. When a month
 * has passed, the number starts again from the new month's beginning, as in RocketMQ.
 *
 * Threads: any. Failure modes: none.
 */
#include "client/message_id.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/env.h"
#include "base/rng.h"

enum { COUNTER_BITS = 16 };

static void put_hex(char *out, const uint8_t *bytes, size_t count)
{
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < count; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
}

void local_ipv4(uint8_t ip[4])
{
    static const uint8_t loopback[4] = {127, 0, 0, 1};
    memcpy(ip, loopback, 4);
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0)
        return;
    for (struct ifaddrs *a = all; a; a = a->ifa_next) {
        if (!a->ifa_addr || a->ifa_addr->sa_family != AF_INET || !(a->ifa_flags & IFF_UP) ||
            (a->ifa_flags & IFF_LOOPBACK))
            continue;
        struct sockaddr_in in;
        memcpy(&in, a->ifa_addr, sizeof in);
        memcpy(ip, &in.sin_addr, 4);
        break;
    }
    freeifaddrs(all);
}

/* Beginning of the month that holds wall_ms, or of the one after it, in UTC. */
static int64_t month_start_ms(int64_t wall_ms, int months_later)
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm tm;
    if (!gmtime_r(&seconds, &tm))
        return 0;
    struct tm first = {.tm_year = tm.tm_year, .tm_mon = tm.tm_mon + months_later, .tm_mday = 1};
    return (int64_t)timegm(&first) * 1000;
}

void id_maker_init(struct id_maker *maker, const struct env *env, const uint8_t ip[4])
{
    uint8_t bytes[10];
    memcpy(bytes, ip, 4);
    put_be16(bytes + 4, (uint16_t)getpid());
    put_be32(bytes + 6, (uint32_t)rng_next(env->rng));
    put_hex(maker->prefix, bytes, sizeof bytes);
    atomic_init(&maker->last, 0);
    atomic_init(&maker->month_ms, 0);
    atomic_init(&maker->next_month_ms, INT64_MIN);
    atomic_init(&maker->turning, false);
}

static struct id_maker process_maker;

static void process_maker_init(void)
{
    struct env env;
    uint8_t ip[4];
    env_init_system(&env, NULL);
    local_ipv4(ip);
    id_maker_init(&process_maker, &env, ip);
}

struct id_maker *id_maker_process(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, process_maker_init);
    return &process_maker;
}

/*
 * Once a month. The new limit is published last: whoever sees it sees the month and the count too.
 * A thread with a time from before it meanwhile counts on from `last`.
 */
static void turn_month(struct id_maker *maker, int64_t wall_ms)
{
    while (atomic_exchange_explicit(&maker->turning, true, memory_order_acquire))
        ;
    if (wall_ms >= atomic_load(&maker->next_month_ms)) {
        atomic_store(&maker->month_ms, month_start_ms(wall_ms, 0));
        atomic_store(&maker->last, 0);
        atomic_store(&maker->next_month_ms, month_start_ms(wall_ms, 1));
    }
    atomic_store_explicit(&maker->turning, false, memory_order_release);
}

void id_maker_next(struct id_maker *maker, int64_t wall_ms, char out[33])
{
    if (wall_ms >= atomic_load_explicit(&maker->next_month_ms, memory_order_acquire))
        turn_month(maker, wall_ms);
    int64_t elapsed_ms = wall_ms - atomic_load_explicit(&maker->month_ms, memory_order_acquire);
    uint64_t floor = elapsed_ms > 0 ? ((uint64_t)elapsed_ms & UINT32_MAX) << COUNTER_BITS : 0;
    uint64_t last = atomic_load_explicit(&maker->last, memory_order_relaxed);
    uint64_t next;
    do
        next = last + 1 > floor ? last + 1 : floor;
    while (!atomic_compare_exchange_weak_explicit(&maker->last, &last, next, memory_order_relaxed,
                                                  memory_order_relaxed));
    uint8_t bytes[8];
    put_be64(bytes, next);
    memcpy(out, maker->prefix, sizeof maker->prefix);
    put_hex(out + sizeof maker->prefix, bytes + 2, 6);
    out[32] = 0;
}
