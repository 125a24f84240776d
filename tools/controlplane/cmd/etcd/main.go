// SPDX-License-Identifier: Apache-2.0

// Command etcd is etcd's own server under its usual name: its main package is
// called server, and so would be the program that go build makes of it.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
