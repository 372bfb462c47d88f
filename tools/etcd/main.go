// The etcd server of a pinned version, built from its module: `go install` of it is refused
// because its go.mod has replace directives.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
