// node-zookeeper-client through what its users lean on; each step asserts what it sees.
//
// Arguments: a connect string that leads straight to the servers, and one through a relay.
// Prints `ok STEP` or `failed STEP: reason` for each step. `ask WHAT` asks the test for trouble on
// the relay (cut, hold, release, move); it answers `done`.

'use strict';

const assert = require('assert').strict;
const readline = require('readline');
const zookeeper = require('node-zookeeper-client');

const { ACL, CreateMode, Exception, Id, Permission, State } = zookeeper;

const [DIRECT, RELAYED] = process.argv.slice(2);
const SESSION_TIMEOUT_MS = 6000;
const PATIENCE_MS = 20000;

const input = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** The clients of the present step. */
let clients = [];

/** What comes one after the other, and is waited for. */
class Queue {
  constructor() {
    this.items = [];
    this.waiting = [];
  }

  put(item) {
    const next = this.waiting.shift();
    if (next) {
      next(item);
    } else {
      this.items.push(item);
    }
  }

  async next(what) {
    if (this.items.length > 0) {
      return this.items.shift();
    }
    return within(what, new Promise((resolve) => this.waiting.push(resolve)));
  }

  async until(item) {
    while ((await this.next(item)) !== item);
  }
}

async function within(what, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} does not come`)), PATIENCE_MS);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

async function connect(hosts = DIRECT) {
  const client = zookeeper.createClient(hosts, { sessionTimeout: SESSION_TIMEOUT_MS, retries: 0 });
  client.states = new Queue();
  client.on('state', (state) => client.states.put(state));
  clients.push(client);
  client.connect();
  await client.states.until(State.SYNC_CONNECTED);
  return client;
}

/** Calls a method that ends with a callback; gives its results. */
function call(client, method, ...args) {
  return within(method, new Promise((resolve, reject) => {
    client[method](...args, (error, ...results) => {
      if (error) {
        reject(error);
      } else {
        resolve(results);
      }
    });
  }));
}

async function refused(code, promise) {
  await assert.rejects(promise, (error) => {
    assert.equal(error.code, code, error.stack);
    return true;
  });
}

async function eventually(what, holds) {
  const deadline = Date.now() + PATIENCE_MS;
  while (!(await holds())) {
    assert(Date.now() < deadline, `${what} does not come`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** This client has no sync: another server may be a moment behind. */
async function comes(client, path) {
  await eventually(path, async () => (await call(client, 'exists', path))[0]);
}

async function ask(what) {
  console.log(`ask ${what}`);
  assert.equal((await input.next()).value, 'done');
}

const seen = (queue) => (event) => queue.put(`${event.getName()} ${event.getPath()}`);

async function createReadWriteDelete() {
  const client = await connect();
  assert.deepEqual(await call(client, 'create', '/basic', Buffer.from('one')), ['/basic']);
  await refused(Exception.NODE_EXISTS, call(client, 'create', '/basic'));
  await refused(Exception.NO_NODE, call(client, 'create', '/absent/child'));
  let [data, stat] = await call(client, 'getData', '/basic');
  assert.equal(data.toString(), 'one');
  assert.deepEqual([stat.version, stat.dataLength, stat.numChildren], [0, 3, 0]);
  assert.deepEqual(stat.czxid, stat.mzxid);
  [stat] = await call(client, 'setData', '/basic', Buffer.from('three'), 0);
  assert.deepEqual([stat.version, stat.dataLength], [1, 5]);
  await refused(Exception.BAD_VERSION, call(client, 'setData', '/basic', Buffer.from('x'), 7));
  await call(client, 'mkdirp', '/basic/a/b');
  const [names] = await call(client, 'getChildren', '/basic');
  assert.deepEqual(names, ['a']);
  await refused(Exception.NOT_EMPTY, call(client, 'remove', '/basic'));
  await refused(Exception.BAD_VERSION, call(client, 'remove', '/basic/a/b', 5));
  for (const path of ['/basic/a/b', '/basic/a', '/basic']) {
    await call(client, 'remove', path);
  }
  assert.deepEqual(await call(client, 'exists', '/basic'), [null]);
  await refused(Exception.NO_NODE, call(client, 'getData', '/basic'));
  await refused(Exception.NO_NODE, call(client, 'remove', '/basic'));
}

async function ephemeralAndSequence() {
  const [client, other] = [await connect(), await connect()];
  await call(client, 'create', '/parent');
  const sequential = CreateMode.PERSISTENT_SEQUENTIAL;
  for (const number of ['0', '1']) {
    const [path] = await call(client, 'create', '/parent/n-', sequential);
    assert.equal(path, `/parent/n-000000000${number}`);
  }
  await comes(other, '/parent/n-0000000001');
  const [path] = await call(other, 'create', '/parent/e-', CreateMode.EPHEMERAL_SEQUENTIAL);
  assert.equal(path, '/parent/e-0000000002');
  await comes(client, path);
  const [stat] = await call(client, 'exists', path);
  assert.deepEqual(stat.ephemeralOwner, other.getSessionId());
  await refused(Exception.NO_CHILDREN_FOR_EPHEMERALS, call(client, 'create', `${path}/child`));
  other.close();
  await eventually('its end', async () => (await call(client, 'exists', path))[0] === null);
}

async function watches() {
  const [client, other] = [await connect(), await connect()];
  const events = new Queue();
  assert.deepEqual(await call(client, 'exists', '/watched', seen(events)), [null]);
  await call(other, 'create', '/watched');
  assert.equal(await events.next('creation'), 'NODE_CREATED /watched');
  await call(client, 'getData', '/watched', seen(events));
  await call(other, 'setData', '/watched', Buffer.from('1'));
  await call(other, 'setData', '/watched', Buffer.from('2'));
  assert.equal(await events.next('change'), 'NODE_DATA_CHANGED /watched');
  await call(client, 'getChildren', '/watched', seen(events));
  await call(other, 'create', '/watched/child');
  assert.equal(await events.next('child'), 'NODE_CHILDREN_CHANGED /watched');
  await call(client, 'exists', '/watched/child', seen(events));
  await call(other, 'remove', '/watched/child');
  assert.equal(await events.next('deletion'), 'NODE_DELETED /watched/child');
  assert.deepEqual(events.items, []);
}

async function transaction() {
  const client = await connect();
  const [results] = await call(
    client.transaction()
      .create('/multi', Buffer.from('one'))
      .create('/multi/n-', CreateMode.EPHEMERAL_SEQUENTIAL)
      .setData('/multi', Buffer.from('two'), 0)
      .check('/multi', 1)
      .create('/multi/gone')
      .remove('/multi/gone', 0),
    'commit');
  assert.equal(results.length, 6);
  assert.deepEqual([results[0].path, results[1].path], ['/multi', '/multi/n-0000000000']);
  assert.equal(results[2].stat.version, 1);
  const [data, stat] = await call(client, 'getData', '/multi');
  assert.equal(data.toString(), 'two');
  assert.deepEqual([stat.cversion, stat.numChildren], [3, 1]);
  assert.deepEqual([stat.mzxid, stat.pzxid], [stat.czxid, stat.czxid]);
}

async function transactionRollsBack() {
  const client = await connect();
  await call(client, 'create', '/back', Buffer.from('data'));
  const transaction = client.transaction()
    .setData('/back', Buffer.from('other'))
    .check('/back', 7)
    .remove('/back');
  const codes = await new Promise((resolve) => {
    transaction.commit((error, results) => {
      resolve([error.code, ...results.map((result) => result.err)]);
    });
  });
  assert.deepEqual(codes, [Exception.BAD_VERSION, Exception.OK, Exception.BAD_VERSION,
    Exception.RUNTIME_INCONSISTENCY]);
  const [data, stat] = await call(client, 'getData', '/back');
  assert.deepEqual([data.toString(), stat.version], ['data', 0]);
}

async function acl() {
  const [client, other] = [await connect(), await connect()];
  client.addAuthInfo('digest', Buffer.from('user:password'));
  await call(client, 'create', '/guarded', Buffer.from('secret'), ACL.CREATOR_ALL_ACL);
  // That it is there is told to readers only.
  await eventually('the node', () => call(other, 'exists', '/guarded').then(
    ([stat]) => assert.equal(stat, null), (error) => error.code === Exception.NO_AUTH));
  await refused(Exception.NO_AUTH, call(other, 'getData', '/guarded'));
  await refused(Exception.INVALID_ACL,
    call(other, 'create', '/no-creator', null, ACL.CREATOR_ALL_ACL));
  const [[entry]] = await call(client, 'getACL', '/guarded');
  assert.deepEqual([entry.permission, entry.id.scheme, entry.id.id],
    [Permission.ALL, 'digest', 'user:tpUq/4Pn5A64fVZyQ0gOJ8ZWqkY=']);
  const both = [entry, new ACL(Permission.READ, Id.ANYONE_ID_UNSAFE)];
  const [stat] = await call(client, 'setACL', '/guarded', both, 0);
  assert.equal(stat.aversion, 1);
  await eventually('the right to read', () => call(other, 'getData', '/guarded').then(
    ([data]) => data.toString() === 'secret', (error) => {
      assert.equal(error.code, Exception.NO_AUTH);
      return false;
    }));
  await refused(Exception.NO_AUTH, call(other, 'setData', '/guarded', Buffer.from('x')));
}

/** Asks for trouble and wants all as it was, and what was missed. */
async function keepsItsSession(trouble) {
  const [client, other] = [await connect(RELAYED), await connect()];
  const path = `/after-${trouble}`;
  await call(client, 'create', path);
  await call(client, 'create', `${path}/ephemeral`, CreateMode.EPHEMERAL);
  await comes(other, `${path}/ephemeral`);
  const session = client.getSessionId().toString('hex');
  const events = new Queue();
  await call(client, 'getData', path, seen(events));
  await call(client, 'exists', `${path}/ephemeral`, seen(events));
  await ask(trouble);
  await client.states.until(State.DISCONNECTED);
  await call(other, 'setData', path, Buffer.from('missed'));
  await client.states.until(State.SYNC_CONNECTED);
  assert.equal(client.getSessionId().toString('hex'), session);
  assert.equal(await events.next('what was missed'), `NODE_DATA_CHANGED ${path}`);
  const [stat] = await call(client, 'exists', `${path}/ephemeral`);
  assert.equal(stat.ephemeralOwner.toString('hex'), session);
  await call(other, 'setData', `${path}/ephemeral`, Buffer.from('now'));
  assert.equal(await events.next('what comes now'), `NODE_DATA_CHANGED ${path}/ephemeral`);
}

async function sessionLoss() {
  const [client, other] = [await connect(RELAYED), await connect()];
  await call(client, 'create', '/lost', CreateMode.EPHEMERAL);
  await comes(other, '/lost');
  await ask('hold');
  await client.states.until(State.DISCONNECTED);
  await eventually('its end', async () => (await call(other, 'exists', '/lost'))[0] === null);
  await ask('release');
  await client.states.until(State.EXPIRED);
}

const STEPS = {
  'create-read-write-delete': createReadWriteDelete,
  'ephemeral-and-sequence': ephemeralAndSequence,
  'watches': watches,
  'transaction': transaction,
  'transaction-rolls-back': transactionRollsBack,
  'acl': acl,
  'cut': () => keepsItsSession('cut'),
  'move': () => keepsItsSession('move'),
  'session-loss': sessionLoss,
};

async function main() {
  let status = 0;
  for (const [name, step] of Object.entries(STEPS)) {
    try {
      await step();
      console.log(`ok ${name}`);
    } catch (reason) {
      status = 1;
      console.error(reason);
      console.log(`failed ${name}: ${String(reason).replaceAll('\n', ' ')}`);
    }
    clients.forEach((client) => client.close());
    clients = [];
  }
  process.exit(status);
}

main();
