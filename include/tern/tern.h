/*
 * Everything an application needs of TernMQ.
 *
 * Environment: NAMESRV_ADDR names the nameservers where no option does. TERNMQ_LOG=debug, info,
 * warn or error sends the library's log to stderr; without it the library prints nothing.
 */
#ifndef TERN_TERN_H
#define TERN_TERN_H

#include <tern/consumer.h>
#include <tern/error.h>
#include <tern/message.h>
#include <tern/producer.h>
#include <tern/request.h>
#include <tern/transaction.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0"; static storage. */
TERN_API const char *tern_version(void);

#ifdef __cplusplus
}
#endif
#endif
