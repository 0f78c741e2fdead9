/*
 * Unique ids (RocketMQ's UNIQ_KEY, MessageClientIDSetter): 32 upper-case hex characters of
 *
 *   IPv4 address 4 | process id 2 | per-process number 4 | ms since the month began 4 | counter 2
 *
 * One maker serves any number of threads without a lock.
 */
#ifndef CLIENT_MESSAGE_ID_H
#define CLIENT_MESSAGE_ID_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <tern/message.h>

struct env;

struct id_maker {
    char prefix[20];          /* hex of the 10 bytes that never change */
    _Atomic uint64_t last;    /* ms since month_ms << 16 | counter; rises within a month */
    _Atomic int64_t month_ms; /* wall clock when the current month (UTC) began */
    _Atomic int64_t next_month_ms;
    _Atomic bool turning;
};

/* The number that stands for Java's class loader comes from env's random numbers. */
void id_maker_init(struct id_maker *maker, const struct env *env, const uint8_t ip[4]);
/* The one of the real world, shared by everybody in the process. @thread any */
struct id_maker *id_maker_process(void);
/* A new id, terminated. @thread any */
void id_maker_next(struct id_maker *maker, int64_t wall_ms, char out[33]);

/* The first IPv4 address of an interface that is up and not loopback, else 127.0.0.1. */
void local_ipv4(uint8_t ip[4]);

/* Gives the message an id when it has none. @thread any */
void message_assign_id(struct tern_message *message, struct id_maker *maker, int64_t wall_ms);

#endif
