// Package main is go-zookeeper through what its users lean on; each step asserts what it sees.
//
// Arguments: a connect string that leads straight to the servers, and one through a relay.
// Prints `ok STEP` or `failed STEP: reason` for each step. `ask WHAT` asks the test for trouble on
// the relay (cut, hold, release, move); it answers `done`.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	sessionTimeout = 6 * time.Second
	patience       = 20 * time.Second
)

var (
	direct, relayed []string
	input           = bufio.NewReader(os.Stdin)
	open            = zk.WorldACL(zk.PermAll)
)

// client is a connection and the states of its session.
type client struct {
	*zk.Conn
	states chan zk.State
}

// closers are the clients of the present step.
var closers []*client

func connect(servers []string) *client {
	c := &client{states: make(chan zk.State, 100)}
	conn, _, err := zk.Connect(servers, sessionTimeout, zk.WithLogInfo(false),
		zk.WithEventCallback(func(event zk.Event) {
			if event.Type == zk.EventSession {
				c.states <- event.State
			}
		}))
	must(err)
	c.Conn = conn
	closers = append(closers, c)
	c.awaitState(zk.StateHasSession)
	return c
}

// awaitState takes states until it is that one.
func (c *client) awaitState(expected zk.State) {
	deadline := time.After(patience)
	for {
		select {
		case state := <-c.states:
			if state == expected {
				return
			}
		case <-deadline:
			fail("%v does not come", expected)
		}
	}
}

// fresh brings the client's server up to date: others' writes may have gone through another one.
func (c *client) fresh() *client {
	_, err := c.Sync("/")
	must(err)
	return c
}

func (c *client) create(path, data string, flags int32) string {
	created, err := c.Create(path, []byte(data), flags, open)
	must(err)
	return created
}

func (c *client) set(path, data string) *zk.Stat {
	stat, err := c.Set(path, []byte(data), -1)
	must(err)
	return stat
}

func (c *client) there(path string) bool {
	there, _, err := c.fresh().Exists(path)
	must(err)
	return there
}

func expectEvent(events <-chan zk.Event, kind zk.EventType, path string) {
	select {
	case event := <-events:
		equal(kind, event.Type)
		equal(path, event.Path)
	case <-time.After(patience):
		fail("%v of %s does not come", kind, path)
	}
}

func expectNone(events <-chan zk.Event) {
	select {
	case event := <-events:
		fail("%v comes", event)
	default:
	}
}

func await(what string, holds func() bool) {
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			fail("%s does not come", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func ask(what string) {
	fmt.Println("ask " + what)
	line, err := input.ReadString('\n')
	must(err)
	equal("done", strings.TrimSpace(line))
}

// failure is what ends a step before its end.
type failure string

func fail(format string, arguments ...any) {
	panic(failure(fmt.Sprintf(format, arguments...)))
}

func must(err error) {
	if err != nil {
		fail("unexpected error: %v", err)
	}
}

func refused(expected, err error) {
	if !errors.Is(err, expected) {
		fail("the error is %v, not %v", err, expected)
	}
}

func equal(expected, found any) {
	if !reflect.DeepEqual(expected, found) {
		fail("%#v, not %#v", found, expected)
	}
}

func sorted(names []string) []string {
	sort.Strings(names)
	return names
}

func run(name string, step func()) (passed bool) {
	defer func() {
		for _, c := range closers {
			c.Close()
		}
		closers = nil
		if reason := recover(); reason != nil {
			fmt.Printf("failed %s: %v\n", name, reason)
			return
		}
		fmt.Println("ok " + name)
		passed = true
	}()
	step()
	return
}

func main() {
	direct = strings.Split(os.Args[1], ",")
	relayed = strings.Split(os.Args[2], ",")
	status := 0
	for _, step := range []struct {
		name string
		step func()
	}{
		{"create-read-write-delete", createReadWriteDelete},
		{"ephemeral-and-sequence", ephemeralAndSequence},
		{"container-and-ttl", containerAndTTL},
		{"protected", protected},
		{"watches", watches},
		{"multi", multi},
		{"multi-rolls-back", multiRollsBack},
		{"acl", acl},
		{"lock", lock},
		{"lock-contended", lockContended},
		{"big-data", bigData},
		{"cut", func() { keepsItsSession("cut") }},
		{"move", func() { keepsItsSession("move") }},
		{"session-loss", sessionLoss},
		{"four-letter-words", fourLetterWords},
	} {
		if !run(step.name, step.step) {
			status = 1
		}
	}
	os.Exit(status)
}
