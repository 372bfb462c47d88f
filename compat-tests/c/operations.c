/* The C client, multi-threaded, through what its users lean on. */

#include "operations.h"

#include <stdlib.h>
#include <unistd.h>

#include "steps.h"

static struct ACL_vector *open_acl(void)
{
    return &ZOO_OPEN_ACL_UNSAFE;
}

static void create(struct client *client, const char *path, const char *data)
{
    EQUAL(ZOK, zoo_create(client->handle, path, data, (int)strlen(data), open_acl(), 0, NULL, 0));
}

static int exists(struct client *client, const char *path, struct Stat *stat)
{
    return zoo_exists(client->handle, path, 0, stat);
}

static void create_read_write_delete(void)
{
    struct client *client = connect_to(direct);
    zhandle_t *handle = client->handle;
    struct Stat stat, after;
    struct String_vector names;
    char path[64], data[64];
    int length = sizeof data;

    EQUAL(ZOK, zoo_create2(handle, "/basic", "one", 3, open_acl(), 0, path, sizeof path, &stat));
    SAME("/basic", path);
    EQUAL(ZNODEEXISTS, zoo_create(handle, "/basic", "", 0, open_acl(), 0, NULL, 0));
    EQUAL(ZNONODE, zoo_create(handle, "/absent/child", "", 0, open_acl(), 0, NULL, 0));
    EQUAL(ZOK, zoo_get(handle, "/basic", 0, data, &length, &after));
    EQUAL(3, length);
    CHECK(memcmp(data, "one", 3) == 0);
    EQUAL(stat.czxid, after.czxid);
    EQUAL(stat.ctime, after.ctime);
    EQUAL(stat.czxid, stat.mzxid);
    EQUAL(ZOK, zoo_set2(handle, "/basic", "three", 5, 0, &after));
    EQUAL(1, after.version);
    EQUAL(5, after.dataLength);
    CHECK(after.mzxid > stat.mzxid);
    EQUAL(ZBADVERSION, zoo_set(handle, "/basic", "x", 1, 0));
    create(client, "/basic/a", "");
    create(client, "/basic/b", "");
    EQUAL(ZOK, zoo_get_children2(handle, "/basic", 0, &names, &after));
    EQUAL(2, names.count);
    EQUAL(2, after.cversion);
    deallocate_String_vector(&names);
    EQUAL(ZNOTEMPTY, zoo_delete(handle, "/basic", -1));
    EQUAL(ZBADVERSION, zoo_delete(handle, "/basic/a", 3));
    EQUAL(ZOK, zoo_delete(handle, "/basic/a", 0));
    EQUAL(ZNONODE, exists(client, "/basic/a", &stat));
    EQUAL(ZNONODE, zoo_get_children(handle, "/basic/a", 0, &names));
}

static void null_and_empty_data(void)
{
    struct client *client = connect_to(direct);
    char data[8];
    int length = sizeof data;
    EQUAL(ZOK, zoo_create(client->handle, "/null", NULL, -1, open_acl(), 0, NULL, 0));
    EQUAL(ZOK, zoo_get(client->handle, "/null", 0, data, &length, NULL));
    EQUAL(-1, length);
    EQUAL(ZOK, zoo_set(client->handle, "/null", "", 0, -1));
    length = sizeof data;
    EQUAL(ZOK, zoo_get(client->handle, "/null", 0, data, &length, NULL));
    EQUAL(0, length);
}

static void ephemeral_and_sequence(void)
{
    struct client *client = connect_to(direct), *other = connect_to(direct);
    int both = ZOO_EPHEMERAL | ZOO_SEQUENCE;
    struct Stat stat;
    char path[64];
    create(client, "/parent", "");
    EQUAL(ZOK, zoo_create(client->handle, "/parent/n-", "", 0, open_acl(), ZOO_SEQUENCE, path,
                          sizeof path));
    SAME("/parent/n-0000000000", path);
    fresh(other);
    EQUAL(ZOK, zoo_create(other->handle, "/parent/e-", "", 0, open_acl(), both, path,
                          sizeof path));
    SAME("/parent/e-0000000001", path);
    fresh(client);
    EQUAL(ZOK, exists(client, path, &stat));
    EQUAL(zoo_client_id(other->handle)->client_id, stat.ephemeralOwner);
    EQUAL(ZNOCHILDRENFOREPHEMERALS,
          zoo_create(client->handle, "/parent/e-0000000001/c", "", 0, open_acl(), 0, NULL, 0));
    close_client(other);
    fresh(client);
    EQUAL(ZNONODE, exists(client, path, &stat));
}

static void container_and_ttl(void)
{
    struct client *client = connect_to(direct);
    struct Stat stat;
    EQUAL(ZOK, zoo_create2(client->handle, "/container", "", 0, open_acl(), ZOO_CONTAINER, NULL, 0,
                           &stat));
    EQUAL(0, stat.ephemeralOwner);
    create(client, "/container/child", "");
    /* Off in ZooKeeper, too, unless it is switched on. */
    EQUAL(ZUNIMPLEMENTED, zoo_create_ttl(client->handle, "/ttl", "", 0, open_acl(),
                                         ZOO_PERSISTENT_WITH_TTL, 60000, NULL, 0));
}

static void watches(void)
{
    struct client *client = connect_to(direct), *other = connect_to(direct);
    struct String_vector names;
    char data[8];
    int length = sizeof data;
    EQUAL(ZNONODE, zoo_wexists(client->handle, "/watched", on_event, client, NULL));
    create(other, "/watched", "");
    expect_event(client, ZOO_CREATED_EVENT, "/watched");
    EQUAL(ZOK, zoo_wget(client->handle, "/watched", on_event, client, data, &length, NULL));
    EQUAL(ZOK, zoo_wget_children(client->handle, "/watched", on_event, client, &names));
    deallocate_String_vector(&names);
    EQUAL(ZOK, zoo_set(other->handle, "/watched", "1", 1, -1));
    EQUAL(ZOK, zoo_set(other->handle, "/watched", "2", 1, -1));
    expect_event(client, ZOO_CHANGED_EVENT, "/watched");
    create(other, "/watched/child", "");
    expect_event(client, ZOO_CHILD_EVENT, "/watched");
    EQUAL(ZOK, zoo_wexists(client->handle, "/watched/child", on_event, client, NULL));
    EQUAL(ZOK, zoo_delete(other->handle, "/watched/child", -1));
    expect_event(client, ZOO_DELETED_EVENT, "/watched/child");
    fresh(client);
    expect_none(client);
}

static void remove_watches(void)
{
    struct client *client = connect_to(direct), *other = connect_to(direct);
    create(client, "/removed", "");
    EQUAL(ZOK, zoo_wexists(client->handle, "/removed", on_event, client, NULL));
    EQUAL(ZOK, zoo_remove_watches(client->handle, "/removed", ZWATCHTYPE_DATA, on_event, client,
                                  0));
    fresh(other);
    EQUAL(ZOK, zoo_set(other->handle, "/removed", "1", 1, -1));
    fresh(client);
    expect_none(client);
    EQUAL(ZNOWATCHER, zoo_remove_watches(client->handle, "/removed", ZWATCHTYPE_DATA, on_event,
                                         client, 0));
}

static void multi(void)
{
    struct client *client = connect_to(direct);
    zoo_op_t ops[6];
    zoo_op_result_t results[6];
    struct Stat set, stat;
    char first[64], second[64];
    int both = ZOO_EPHEMERAL | ZOO_SEQUENCE;
    zoo_create_op_init(&ops[0], "/multi", "one", 3, open_acl(), 0, first, sizeof first);
    zoo_create_op_init(&ops[1], "/multi/n-", "", 0, open_acl(), both, second, sizeof second);
    zoo_set_op_init(&ops[2], "/multi", "two", 3, 0, &set);
    zoo_check_op_init(&ops[3], "/multi", 1);
    zoo_create_op_init(&ops[4], "/multi/gone", "", 0, open_acl(), 0, NULL, 0);
    zoo_delete_op_init(&ops[5], "/multi/gone", 0);
    EQUAL(ZOK, zoo_multi(client->handle, 6, ops, results));
    for (int i = 0; i < 6; i++) {
        EQUAL(ZOK, results[i].err);
    }
    SAME("/multi", first);
    SAME("/multi/n-0000000000", second);
    EQUAL(1, set.version);
    EQUAL(ZOK, exists(client, "/multi", &stat));
    EQUAL(stat.czxid, stat.mzxid);
    EQUAL(stat.czxid, stat.pzxid);
    EQUAL(3, stat.cversion);
    EQUAL(1, stat.numChildren);
}

static void multi_rolls_back(void)
{
    struct client *client = connect_to(direct);
    zoo_op_t ops[4];
    zoo_op_result_t results[4];
    struct Stat stat;
    create(client, "/back", "data");
    zoo_set_op_init(&ops[0], "/back", "other", 5, -1, NULL);
    zoo_create_op_init(&ops[1], "/back/child", "", 0, open_acl(), 0, NULL, 0);
    zoo_check_op_init(&ops[2], "/back", 7);
    zoo_delete_op_init(&ops[3], "/back", -1);
    EQUAL(ZBADVERSION, zoo_multi(client->handle, 4, ops, results));
    EQUAL(ZOK, results[0].err);
    EQUAL(ZOK, results[1].err);
    EQUAL(ZBADVERSION, results[2].err);
    EQUAL(ZRUNTIMEINCONSISTENCY, results[3].err);
    EQUAL(ZOK, exists(client, "/back", &stat));
    EQUAL(0, stat.version);
    EQUAL(0, stat.cversion);
}

static void acl(void)
{
    struct client *client = connect_to(direct), *other = connect_to(direct);
    struct ACL_vector found;
    struct ACL entries[2];
    struct ACL_vector both = {2, entries};
    struct Stat stat;
    char data[8];
    int length = sizeof data;
    EQUAL(ZOK, zoo_add_auth(client->handle, "digest", "user:password", 13, NULL, NULL));
    EQUAL(ZOK, zoo_create(client->handle, "/guarded", "x", 1, &ZOO_CREATOR_ALL_ACL, 0, NULL, 0));
    fresh(other);
    EQUAL(ZNOAUTH, zoo_get(other->handle, "/guarded", 0, data, &length, NULL));
    EQUAL(ZNOAUTH, zoo_get_acl(other->handle, "/guarded", &found, &stat));
    EQUAL(ZOK, zoo_get_acl(client->handle, "/guarded", &found, &stat));
    EQUAL(1, found.count);
    EQUAL(ZOO_PERM_ALL, found.data[0].perms);
    SAME("digest", found.data[0].id.scheme);
    SAME("user:tpUq/4Pn5A64fVZyQ0gOJ8ZWqkY=", found.data[0].id.id);
    entries[0] = found.data[0];
    entries[1].perms = ZOO_PERM_READ;
    entries[1].id = ZOO_ANYONE_ID_UNSAFE;
    EQUAL(ZOK, zoo_set_acl(client->handle, "/guarded", 0, &both));
    EQUAL(ZBADVERSION, zoo_set_acl(client->handle, "/guarded", 0, &both));
    deallocate_ACL_vector(&found);
    fresh(other);
    length = sizeof data;
    EQUAL(ZOK, zoo_get(other->handle, "/guarded", 0, data, &length, &stat));
    EQUAL(1, stat.aversion);
    EQUAL(ZNOAUTH, zoo_set(other->handle, "/guarded", "y", 1, -1));
    EQUAL(ZINVALIDACL,
          zoo_create(other->handle, "/no-creator", "", 0, &ZOO_CREATOR_ALL_ACL, 0, NULL, 0));
}

/* How many answers came, and whether each in its turn. */
static struct {
    pthread_mutex_t lock;
    long answers;
    int in_order;
} pipeline = {PTHREAD_MUTEX_INITIALIZER, 0, 1};

static void on_set(int code, const struct Stat *stat, const void *context)
{
    long number = (long)(intptr_t)context;
    pthread_mutex_lock(&pipeline.lock);
    pipeline.in_order &= code == ZOK && number == pipeline.answers && stat->version == number + 1;
    pipeline.answers++;
    pthread_mutex_unlock(&pipeline.lock);
}

static void pipelined(void)
{
    enum { COUNT = 500 };
    struct client *client = connect_to(direct);
    create(client, "/pipelined", "");
    for (long i = 0; i < COUNT; i++) {
        EQUAL(ZOK, zoo_aset(client->handle, "/pipelined", "x", 1, (int)i, on_set,
                            (const void *)(intptr_t)i));
    }
    fresh(client);
    pthread_mutex_lock(&pipeline.lock);
    long answers = pipeline.answers;
    int in_order = pipeline.in_order;
    pthread_mutex_unlock(&pipeline.lock);
    EQUAL(COUNT, answers);
    CHECK(in_order);
}

/* Asks for trouble and wants all as it was, and what was missed. */
static void keeps_its_session(const char *path, const char *trouble)
{
    struct client *client = connect_to(relayed), *other = connect_to(direct);
    int64_t session = zoo_client_id(client->handle)->client_id;
    char child[64];
    struct Stat stat;
    snprintf(child, sizeof child, "%s/e", path);
    create(client, path, "");
    EQUAL(ZOK, zoo_create(client->handle, child, "", 0, open_acl(), ZOO_EPHEMERAL, NULL, 0));
    EQUAL(ZOK, zoo_wexists(client->handle, path, on_event, client, NULL));
    EQUAL(ZOK, zoo_wexists(client->handle, child, on_event, client, NULL));
    ask(trouble);
    fresh(other);
    EQUAL(ZOK, zoo_set(other->handle, path, "missed", 6, -1));
    expect_state(client, ZOO_CONNECTING_STATE);
    expect_state(client, ZOO_CONNECTED_STATE);
    expect_event(client, ZOO_CHANGED_EVENT, path);
    EQUAL(session, zoo_client_id(client->handle)->client_id);
    fresh(client);
    expect_none(client);
    fresh(other);
    EQUAL(ZOK, exists(other, child, &stat));
    EQUAL(session, stat.ephemeralOwner);
    EQUAL(ZOK, zoo_set(other->handle, child, "now", 3, -1));
    expect_event(client, ZOO_CHANGED_EVENT, child);
}

static void cut(void)
{
    keeps_its_session("/after-cut", "cut");
}

static void move(void)
{
    keeps_its_session("/after-move", "move");
}

static void session_loss(void)
{
    struct client *client = connect_to(relayed), *other = connect_to(direct);
    struct Stat stat;
    int code = ZOK;
    EQUAL(ZOK, zoo_create(client->handle, "/lost", "", 0, open_acl(), ZOO_EPHEMERAL, NULL, 0));
    ask("hold");
    for (int i = 0; i < 20 * PATIENCE_S && code == ZOK; i++) {
        usleep(50 * 1000);
        fresh(other);
        code = exists(other, "/lost", &stat);
    }
    EQUAL(ZNONODE, code);
    ask("release");
    expect_state(client, ZOO_CONNECTING_STATE);
    expect_state(client, ZOO_EXPIRED_SESSION_STATE);
    EQUAL(ZINVALIDSTATE, exists(client, "/lost", &stat));
}

const struct step steps[] = {
    {"create-read-write-delete", create_read_write_delete},
    {"null-and-empty-data", null_and_empty_data},
    {"ephemeral-and-sequence", ephemeral_and_sequence},
    {"container-and-ttl", container_and_ttl},
    {"watches", watches},
    {"remove-watches", remove_watches},
    {"multi", multi},
    {"multi-rolls-back", multi_rolls_back},
    {"acl", acl},
    {"pipelined", pipelined},
    {"cut", cut},
    {"move", move},
    {"session-loss", session_loss},
    {NULL, NULL},
};
