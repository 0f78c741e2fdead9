/* What tests of producers share: messages, sends, and what an asynchronous send came to. */
#ifndef TESTS_UNIT_CLIENT_SENDING_H
#define TESTS_UNIT_CLIENT_SENDING_H

#include "client_world.h"

struct tern_message *message(const char *topic, const char *body);
enum tern_code send_one(struct tern_producer *producer, const char *topic, const char *body,
                        struct tern_send_result *result, struct tern_error *err);

/* What an asynchronous send came to. */
struct outcome {
    int calls;
    enum tern_code code;
    struct tern_send_result result;
    char text[200];
    int64_t at_ns;
    struct client_world *world; /* for at_ns; may be NULL */
};
/* A tern_send_callback. */
void note(void *arg, enum tern_code code, const struct tern_send_result *result,
          const struct tern_error *err);
/* To topic T; queue NULL: round robin. */
enum tern_code send_async(struct tern_producer *producer, const char *body,
                          const struct tern_queue *queue, struct outcome *outcome);
struct tern_queue queue_of(const char *broker, int32_t id);

#endif
