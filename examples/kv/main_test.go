package main

import (
	"context"
	"fmt"
	"os"
)

func Example() {
	dir, err := os.MkdirTemp("", "raftyard-kv-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	if err := run(context.Background(), dir); err != nil {
		fmt.Println(err)
	}
	// Output:
	// alice has 100, at revision 1
	// alice is not opened twice: kv: precondition failed: the key is at revision 1
	// 30 moved to bob: true, at revision 2
	// alice has 70
	// bob has 30
}
