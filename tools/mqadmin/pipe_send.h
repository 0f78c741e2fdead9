/* What the two ways of sendMessage share. */
#ifndef MQADMIN_PIPE_SEND_H
#define MQADMIN_PIPE_SEND_H

#include <tern/tern.h>

#include "tools/mqadmin/command.h"

enum { SENDER_QUEUES_MAX = 4096, SENDER_BODY_MAX = 64 << 20 };

/* One sendMessage command. */
struct sender {
    struct invocation *invocation;
    struct tern_producer *producer;
    const char *topic;
    int64_t delay_level, deliver_at_ms; /* 0: none */
    bool trace;
    struct tern_queue
        queues[SENDER_QUEUES_MAX]; /* where to: all of the topic, or the one of -b and -i */
    size_t queue_count;
};

/* A message with the command's tag, keys and properties. */
MUST_CHECK enum tern_code sender_message(const struct sender *sender, const void *body, size_t size,
                                         struct tern_message **out, struct tern_error *err);
/* --lines; the exit status. @blocks until stdin ends and everything is answered */
int send_lines(struct sender *sender);

#endif
