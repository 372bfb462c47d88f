package main

import (
	"bytes"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

func createReadWriteDelete() {
	c := connect(direct)
	equal("/basic", c.create("/basic", "one", zk.FlagPersistent))
	_, err := c.Create("/basic", nil, zk.FlagPersistent, open)
	refused(zk.ErrNodeExists, err)
	_, err = c.Create("/absent/child", nil, zk.FlagPersistent, open)
	refused(zk.ErrNoNode, err)
	data, stat, err := c.Get("/basic")
	must(err)
	equal("one", string(data))
	equal([]int32{0, 0, 0, 3, 0}, []int32{
		stat.Version, stat.Cversion, stat.Aversion, stat.DataLength, stat.NumChildren})
	equal(stat.Czxid, stat.Mzxid)
	equal(stat.Czxid, stat.Pzxid)
	after := c.set("/basic", "three")
	equal(int32(1), after.Version)
	equal(true, after.Mzxid > stat.Mzxid)
	_, err = c.Set("/basic", nil, 7)
	refused(zk.ErrBadVersion, err)
	_, err = c.Set("/absent", nil, -1)
	refused(zk.ErrNoNode, err)
	c.create("/basic/b", "", zk.FlagPersistent)
	c.create("/basic/a", "", zk.FlagPersistent)
	names, stat, err := c.Children("/basic")
	must(err)
	equal([]string{"a", "b"}, sorted(names))
	equal([]int32{2, 2}, []int32{stat.Cversion, stat.NumChildren})
	refused(zk.ErrNotEmpty, c.Delete("/basic", -1))
	refused(zk.ErrBadVersion, c.Delete("/basic/a", 3))
	must(c.Delete("/basic/a", 0))
	refused(zk.ErrNoNode, c.Delete("/basic/a", 0))
	equal(false, c.there("/basic/a"))
	_, _, err = c.Get("/basic/a")
	refused(zk.ErrNoNode, err)
	_, _, err = c.Children("/basic/a")
	refused(zk.ErrNoNode, err)
}

func ephemeralAndSequence() {
	c, other := connect(direct), connect(direct)
	c.create("/parent", "", zk.FlagPersistent)
	equal("/parent/n-0000000000", c.create("/parent/n-", "", zk.FlagSequence))
	equal("/parent/n-0000000001", c.create("/parent/n-", "", zk.FlagSequence))
	path := other.fresh().create("/parent/e-", "", zk.FlagEphemeralSequential)
	equal("/parent/e-0000000002", path)
	_, stat, err := c.fresh().Get(path)
	must(err)
	equal(other.SessionID(), stat.EphemeralOwner)
	_, err = c.Create(path+"/child", nil, zk.FlagPersistent, open)
	refused(zk.ErrNoChildrenForEphemerals, err)
	other.Close()
	await("the end of the ephemeral", func() bool { return !c.there(path) })
}

func containerAndTTL() {
	c := connect(direct)
	path, err := c.CreateContainer("/container", nil, zk.FlagContainer, open)
	must(err)
	equal("/container", path)
	c.create("/container/child", "", zk.FlagPersistent)
	// Off in ZooKeeper, too, unless it is switched on.
	_, err = c.CreateTTL("/ttl", nil, zk.FlagTTL, open, time.Hour)
	if err == nil || !strings.Contains(err.Error(), "-6") {
		fail("a TTL node is answered with %v", err)
	}
}

func protected() {
	c := connect(direct)
	c.create("/protected", "", zk.FlagPersistent)
	path, err := c.CreateProtectedEphemeralSequential("/protected/p-", nil, open)
	must(err)
	equal(true, strings.HasPrefix(path, "/protected/_c_"))
	equal(true, strings.HasSuffix(path, "-p-0000000000"))
}

func watches() {
	c, other := connect(direct), connect(direct)
	there, _, created, err := c.ExistsW("/watched")
	must(err)
	equal(false, there)
	other.create("/watched", "", zk.FlagPersistent)
	expectEvent(created, zk.EventNodeCreated, "/watched")
	_, _, changed, err := c.GetW("/watched")
	must(err)
	_, _, children, err := c.ChildrenW("/watched")
	must(err)
	other.set("/watched", "1")
	other.set("/watched", "2")
	expectEvent(changed, zk.EventNodeDataChanged, "/watched")
	expectNone(children)
	other.create("/watched/child", "", zk.FlagPersistent)
	expectEvent(children, zk.EventNodeChildrenChanged, "/watched")
	_, _, deleted, err := c.GetW("/watched/child")
	must(err)
	must(other.Delete("/watched/child", -1))
	expectEvent(deleted, zk.EventNodeDeleted, "/watched/child")
}

func multi() {
	c := connect(direct)
	results, err := c.Multi(
		&zk.CreateRequest{Path: "/multi", Data: []byte("one"), Acl: open},
		&zk.CreateRequest{Path: "/multi/n-", Acl: open, Flags: zk.FlagEphemeralSequential},
		&zk.SetDataRequest{Path: "/multi", Data: []byte("two"), Version: 0},
		&zk.CheckVersionRequest{Path: "/multi", Version: 1},
		&zk.CreateRequest{Path: "/multi/gone", Acl: open},
		&zk.DeleteRequest{Path: "/multi/gone", Version: 0},
	)
	must(err)
	equal(6, len(results))
	equal("/multi", results[0].String)
	equal("/multi/n-0000000000", results[1].String)
	equal(int32(1), results[2].Stat.Version)
	_, stat, err := c.Get("/multi")
	must(err)
	// All of it is one change.
	equal(stat.Czxid, stat.Mzxid)
	equal(stat.Czxid, stat.Pzxid)
	equal([]int32{1, 3, 1}, []int32{stat.Version, stat.Cversion, stat.NumChildren})
}

func multiRollsBack() {
	c := connect(direct)
	c.create("/back", "data", zk.FlagPersistent)
	results, err := c.Multi(
		&zk.SetDataRequest{Path: "/back", Data: []byte("other"), Version: -1},
		&zk.CreateRequest{Path: "/back/child", Acl: open},
		&zk.CheckVersionRequest{Path: "/back", Version: 7},
		&zk.DeleteRequest{Path: "/back", Version: -1},
	)
	refused(zk.ErrBadVersion, err)
	equal(4, len(results))
	equal(nil, results[0].Error)
	equal(nil, results[1].Error)
	equal(zk.ErrBadVersion, results[2].Error)
	equal("unknown error: -2", results[3].Error.Error())
	data, stat, err := c.Get("/back")
	must(err)
	equal("data", string(data))
	equal([]int32{0, 0}, []int32{stat.Version, stat.Cversion})
}

func acl() {
	c, other := connect(direct), connect(direct)
	must(c.AddAuth("digest", []byte("user:password")))
	_, err := c.Create("/guarded", []byte("secret"), zk.FlagPersistent, zk.AuthACL(zk.PermAll))
	must(err)
	_, _, err = other.fresh().Get("/guarded")
	refused(zk.ErrNoAuth, err)
	found, _, err := c.GetACL("/guarded")
	must(err)
	equal(zk.DigestACL(zk.PermAll, "user", "password"), found)
	both := append(found, zk.WorldACL(zk.PermRead)...)
	stat, err := c.SetACL("/guarded", both, 0)
	must(err)
	equal(int32(1), stat.Aversion)
	_, err = c.SetACL("/guarded", both, 0)
	refused(zk.ErrBadVersion, err)
	data, _, err := other.fresh().Get("/guarded")
	must(err)
	equal("secret", string(data))
	_, err = other.Set("/guarded", nil, -1)
	refused(zk.ErrNoAuth, err)
	_, err = other.Create("/no-auth", nil, zk.FlagPersistent, zk.AuthACL(zk.PermAll))
	refused(zk.ErrInvalidACL, err)
	must(other.AddAuth("digest", []byte("user:password")))
	_, err = other.Set("/guarded", []byte("mine"), -1)
	must(err)
}

func lock() {
	c, other := connect(direct), connect(direct)
	first, second := zk.NewLock(c.Conn, "/lock", open), zk.NewLock(other.Conn, "/lock", open)
	must(first.Lock())
	refused(zk.ErrDeadlock, first.Lock())
	got := make(chan error, 1)
	go func() { got <- second.LockWithData([]byte("second")) }()
	await("the second in line", func() bool {
		names, _, err := c.fresh().Children("/lock")
		must(err)
		return len(names) == 2
	})
	equal(0, len(got))
	// Its session ends without an unlock.
	c.Close()
	select {
	case err := <-got:
		must(err)
	case <-time.After(patience):
		fail("the lock of a closed holder does not come")
	}
	must(second.Unlock())
	refused(zk.ErrNotLocked, second.Unlock())
}

func lockContended() {
	const workers, rounds = 4, 5
	var inside, most, sum atomic.Int32
	done := make(chan error, workers)
	for i := 0; i < workers; i++ {
		c := connect(direct)
		go func() {
			lock := zk.NewLock(c.Conn, "/contended", open)
			for round := 0; round < rounds; round++ {
				if err := lock.Lock(); err != nil {
					done <- err
					return
				}
				if now := inside.Add(1); now > most.Load() {
					most.Store(now)
				}
				time.Sleep(2 * time.Millisecond)
				inside.Add(-1)
				sum.Add(1)
				if err := lock.Unlock(); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for i := 0; i < workers; i++ {
		select {
		case err := <-done:
			must(err)
		case <-time.After(2 * patience):
			fail("the workers are not done")
		}
	}
	equal(int32(1), most.Load())
	equal(int32(workers*rounds), sum.Load())
}

func bigData() {
	c, other := connect(direct), connect(direct)
	big := bytes.Repeat([]byte("0123456789abcdef"), 60_000)
	_, err := c.Create("/big", big, zk.FlagPersistent, open)
	must(err)
	found, stat, err := other.fresh().Get("/big")
	must(err)
	equal(true, bytes.Equal(big, found))
	equal(int32(len(big)), stat.DataLength)
}

// keepsItsSession asks for trouble and wants all as it was, and what was missed.
func keepsItsSession(trouble string) {
	c, other := connect(relayed), connect(direct)
	path := "/after-" + trouble
	c.create(path, "", zk.FlagPersistent)
	c.create(path+"/ephemeral", "", zk.FlagEphemeral)
	session := c.SessionID()
	_, _, changed, err := c.GetW(path)
	must(err)
	_, _, children, err := c.ChildrenW(path)
	must(err)
	_, _, created, err := c.ExistsW(path + "/later")
	must(err)
	_, _, unchanged, err := c.GetW(path + "/ephemeral")
	must(err)
	ask(trouble)
	c.awaitState(zk.StateDisconnected)
	other.fresh().set(path, "missed")
	other.create(path+"/later", "", zk.FlagPersistent)
	c.awaitState(zk.StateHasSession)
	equal(session, c.SessionID())
	expectEvent(changed, zk.EventNodeDataChanged, path)
	expectEvent(children, zk.EventNodeChildrenChanged, path)
	expectEvent(created, zk.EventNodeCreated, path+"/later")
	expectNone(unchanged)
	equal(true, other.there(path+"/ephemeral"))
	other.set(path+"/ephemeral", "now")
	expectEvent(unchanged, zk.EventNodeDataChanged, path+"/ephemeral")
}

func sessionLoss() {
	c, other := connect(relayed), connect(direct)
	c.create("/lost", "", zk.FlagEphemeral)
	session := c.SessionID()
	ask("hold")
	c.awaitState(zk.StateDisconnected)
	await("the session's end", func() bool { return !other.there("/lost") })
	ask("release")
	c.awaitState(zk.StateExpired)
	c.awaitState(zk.StateHasSession)
	equal(false, session == c.SessionID())
	c.create("/lost", "", zk.FlagEphemeral)
}

func fourLetterWords() {
	c := connect(direct)
	equal([]bool{true}, zk.FLWRuok([]string{c.Server()}, patience))
	// It complains of the connection that asks, which has no session yet, and reads the others.
	all, _ := zk.FLWCons([]string{c.Server()}, patience)
	equal(1, len(all))
	mine := 0
	for _, found := range all[0].Clients {
		if found.SessionID == c.SessionID() {
			mine++
		}
	}
	equal(1, mine)
}
