/* What the steps lean on: clients, events with patience, and the protocol with the test. */

#ifndef STEPS_H
#define STEPS_H

#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <zookeeper/zookeeper.h>

enum { SESSION_TIMEOUT_MS = 6000, PATIENCE_S = 20, EVENTS_MAX = 64, CLIENTS_MAX = 8 };

struct event {
    int type;
    int state;
    char path[256];
};

/* A session, and what was told of it and not yet asked for. */
struct client {
    zhandle_t *handle;
    pthread_mutex_t lock;
    pthread_cond_t told;
    struct event events[EVENTS_MAX];
    int count;
};

/* Connect strings: straight to all servers, and through a relay to one. */
extern const char *direct, *relayed;

/* Where a step that fails goes on. */
extern jmp_buf failed;

/* Ends the step with a reason, which `print` formats. */
#define FAIL(...) (printf("failed %s: ", step_name), printf(__VA_ARGS__), printf("\n"), \
                   longjmp(failed, 1))
#define CHECK(holds) ((holds) ? (void)0 : (void)FAIL("line %d: %s", __LINE__, #holds))
#define EQUAL(expected, found) check_equal(__LINE__, (long long)(expected), (long long)(found))
#define SAME(expected, found) check_same(__LINE__, expected, found)

extern const char *step_name;

void check_equal(int line, long long expected, long long found);
void check_same(int line, const char *expected, const char *found);

/* A connected client; all are closed when the step ends. */
struct client *connect_to(const char *hosts);
void close_client(struct client *client);

/* A watcher; its context is the client. Every client has it for its session's events. */
void on_event(zhandle_t *handle, int type, int state, const char *path, void *context);

/* The next event of a znode has to be that one. */
void expect_event(struct client *client, int type, const char *path);
/* The next event of the session has to be that one. */
void expect_state(struct client *client, int state);
/* Nothing was told. */
void expect_none(struct client *client);

/* Brings the client's server up to date: others' writes may have gone through another one. */
void fresh(struct client *client);

/* Asks the test for trouble on the relay: cut, hold, release, move. */
void ask(const char *what);

#endif
