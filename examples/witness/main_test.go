package main

import (
	"context"
	"fmt"
	"os"
)

func Example() {
	dir, err := os.MkdirTemp("", "raftyard-witness-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	if err := run(context.Background(), dir); err != nil {
		fmt.Println(err)
	}
	// Output:
	// node 2 says: 51 apples, log only: true
	// without the full copy nothing is done: true
	// node 4 has taken the place of node 1
	// node 2 says: 51 apples, log only: true
}
