/*
 * Cancelling a delayed message: checked here, decided by the schedule's task, which also answers.
 */
#include "broker/handlers/checks.h"
#include "broker/schedule/schedule.h"

enum { MESSAGE_KEY_MAX = 255 };

void handle_cancel_delayed(struct broker *broker, struct rpc_request *request)
{
    const Tern__Wire__CancelDelayedRequest *wanted = request->header->cancel_delayed;
    struct tern_error err;
    enum tern_code code = check_master(broker, &err);
    if (!code && wanted->physical_offset < 0)
        code = error_set(&err, TERN_INVALID, "physical_offset %" PRId64 " is negative",
                         wanted->physical_offset);
    if (!code && (wanted->message_id.len < 1 || wanted->message_id.len > MESSAGE_KEY_MAX))
        code = error_set(&err, TERN_INVALID, "message_id has %zu bytes, allowed 1..%d",
                         wanted->message_id.len, MESSAGE_KEY_MAX);
    if (code)
        rpc_reply_failure(request, code, &err);
    else
        schedule_cancel(broker->schedule, request);
}
