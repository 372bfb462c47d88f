/* Runs the steps: `ok STEP` or `failed STEP: reason` for each. */

#include "steps.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "operations.h"

const char *direct, *relayed;
const char *step_name;
jmp_buf failed;

static struct client clients[CLIENTS_MAX];
static int clients_count;

void check_equal(int line, long long expected, long long found)
{
    if (expected != found) {
        FAIL("line %d: %lld, not %lld", line, found, expected);
    }
}

void check_same(int line, const char *expected, const char *found)
{
    if (strcmp(expected, found) != 0) {
        FAIL("line %d: %s, not %s", line, found, expected);
    }
}

static struct timespec deadline(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_sec += PATIENCE_S;
    return time;
}

void on_event(zhandle_t *handle, int type, int state, const char *path, void *context)
{
    struct client *client = context;
    (void)handle;
    pthread_mutex_lock(&client->lock);
    if (client->count < EVENTS_MAX) {
        struct event *event = &client->events[client->count++];
        event->type = type;
        event->state = state;
        snprintf(event->path, sizeof event->path, "%s", path);
    }
    pthread_cond_signal(&client->told);
    pthread_mutex_unlock(&client->lock);
}

struct client *connect_to(const char *hosts)
{
    struct client *client;
    CHECK(clients_count < CLIENTS_MAX);
    client = &clients[clients_count++];
    memset(client, 0, sizeof *client);
    pthread_mutex_init(&client->lock, NULL);
    pthread_cond_init(&client->told, NULL);
    client->handle = zookeeper_init(hosts, on_event, SESSION_TIMEOUT_MS, NULL, client, 0);
    CHECK(client->handle != NULL);
    expect_state(client, ZOO_CONNECTED_STATE);
    return client;
}

void close_client(struct client *client)
{
    if (client->handle != NULL) {
        zookeeper_close(client->handle);
        client->handle = NULL;
    }
}

/* Takes the first event that is of the session, or of a znode; whether there is one in time. */
static int next_event(struct client *client, int of_session, struct event *event)
{
    struct timespec until = deadline();
    int found = 0;
    pthread_mutex_lock(&client->lock);
    for (;;) {
        for (int i = 0; i < client->count && !found; i++) {
            if ((client->events[i].type == ZOO_SESSION_EVENT) == of_session) {
                *event = client->events[i];
                client->count--;
                memmove(&client->events[i], &client->events[i + 1],
                        (size_t)(client->count - i) * sizeof *event);
                found = 1;
            }
        }
        if (found || pthread_cond_timedwait(&client->told, &client->lock, &until) != 0) {
            break;
        }
    }
    pthread_mutex_unlock(&client->lock);
    return found;
}

void expect_event(struct client *client, int type, const char *path)
{
    struct event event;
    if (!next_event(client, 0, &event)) {
        FAIL("no event %d of %s", type, path);
    }
    if (event.type != type || strcmp(event.path, path) != 0) {
        FAIL("event %d of %s, not %d of %s", event.type, event.path, type, path);
    }
}

void expect_state(struct client *client, int state)
{
    struct event event;
    if (!next_event(client, 1, &event)) {
        FAIL("no state %d", state);
    }
    if (event.state != state) {
        FAIL("state %d, not %d", event.state, state);
    }
}

void expect_none(struct client *client)
{
    pthread_mutex_lock(&client->lock);
    int count = client->count;
    struct event first = client->events[0];
    pthread_mutex_unlock(&client->lock);
    if (count > 0) {
        FAIL("event %d of %s, which nobody expects", first.type, first.path);
    }
}

struct answer {
    pthread_mutex_t lock;
    pthread_cond_t told;
    int code;
};

static void on_sync(int code, const char *value, const void *context)
{
    struct answer *answer = (struct answer *)context;
    (void)value;
    pthread_mutex_lock(&answer->lock);
    answer->code = code;
    pthread_cond_signal(&answer->told);
    pthread_mutex_unlock(&answer->lock);
}

void fresh(struct client *client)
{
    /* Not on the stack: the answer may come when nobody waits any more. */
    static struct answer answer = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    struct timespec until = deadline();
    answer.code = 1;
    EQUAL(ZOK, zoo_async(client->handle, "/", on_sync, &answer));
    pthread_mutex_lock(&answer.lock);
    while (answer.code == 1) {
        if (pthread_cond_timedwait(&answer.told, &answer.lock, &until) != 0) {
            break;
        }
    }
    pthread_mutex_unlock(&answer.lock);
    EQUAL(ZOK, answer.code);
}

void ask(const char *what)
{
    char line[16];
    printf("ask %s\n", what);
    CHECK(fgets(line, sizeof line, stdin) != NULL);
    SAME("done\n", line);
}

int main(int count, char **arguments)
{
    /* Static: a local one may not survive the jump back. */
    static int status = 0;
    if (count != 3) {
        fprintf(stderr, "two connect strings are needed\n");
        return 2;
    }
    direct = arguments[1];
    relayed = arguments[2];
    setvbuf(stdout, NULL, _IOLBF, 0);
    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    for (const struct step *step = steps; step->name != NULL; step++) {
        step_name = step->name;
        if (setjmp(failed) == 0) {
            step->run();
            printf("ok %s\n", step->name);
        } else {
            status = 1;
        }
        while (clients_count > 0) {
            close_client(&clients[--clients_count]);
        }
    }
    return status;
}
