//go:build unix

package cluster

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

const (
	// envBinary names the daemon that is tested. It is set by [Main]; when it is
	// set already, that program is used.
	envBinary = "RAFTYARD_TEST_BINARY"
	// envScale chooses the size of the tests; see [FullScale].
	envScale = "RAFTYARD_TEST_SCALE"

	daemonPackage = "github.com/raftyard/raftyard/cmd/raftyard"
	buildPatience = 5 * time.Minute
)

// FullScale reports whether RAFTYARD_TEST_SCALE=full asks for the tests at the
// size at which the project promises things, and not at one that suits every
// change.
func FullScale() bool { return os.Getenv(envScale) == "full" }

// Sized returns the size of something at the scale that is asked for.
func Sized[T any](usual, full T) T {
	if FullScale() {
		return full
	}
	return usual
}

// Long marks a test that -short leaves out.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("long: left out by -short")
	}
}

// Main runs the tests of a package with a daemon that is built once, and returns
// the exit code.
func Main(m *testing.M) int {
	if !flag.Parsed() {
		flag.Parse() //nolint:revive // testing leaves it to whoever runs before it
	}
	if v := os.Getenv(envScale); v != "" && v != "full" {
		fmt.Fprintf(os.Stderr, "%s is %q, want full, or nothing\n", envScale, v)
		return 2
	}
	if os.Getenv(envBinary) != "" || listing() {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "raftyard-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary := filepath.Join(dir, "raftyard")
	err = build(binary)
	if err == nil {
		err = os.Setenv(envBinary, binary)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	return m.Run()
}

// listing reports whether the tests are only to be listed.
func listing() bool {
	f := flag.Lookup("test.list")
	return f != nil && f.Value.String() != ""
}

// build compiles the daemon, with the race detector if the test has it.
func build(binary string) error {
	ctx, cancel := context.WithTimeout(context.Background(), buildPatience)
	defer cancel()
	args := []string{"build", "-o", binary}
	if RaceEnabled {
		args = append(args, "-race")
	}
	//nolint:gosec // the arguments are ours
	cmd := exec.CommandContext(ctx, "go", append(args, daemonPackage)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build the daemon: %w\n%s", err, out.Bytes())
	}
	return nil
}
