/* The two commands that belong in pipes. */
#ifndef MQADMIN_PIPE_H
#define MQADMIN_PIPE_H

struct invocation;

int pipe_send(struct invocation *invocation);
int pipe_consume(struct invocation *invocation);

#endif
