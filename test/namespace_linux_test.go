package test

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// insideEnv tells a test that it runs in a mount namespace of its own.
const insideEnv = "RAFTYARD_TEST_INSIDE"

// ownMounts runs the test again, as a child in a mount namespace of its own, and reports
// false when that is done. In the child it reports true: what it mounts nobody else sees,
// and it is gone with it. Where there are no user namespaces the test is left out, or fails
// where nobody would notice that.
func ownMounts(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideEnv) == t.Name() {
		return true
	}
	args := []string{"-test.run=^" + t.Name() + "$", "-test.v"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), insideEnv+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER, Pdeathsig: syscall.SIGKILL,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	denied := errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) ||
		errors.Is(err, unix.ENOSPC)
	if denied && os.Getenv("CI") == "" {
		t.Skipf("no user namespaces here: %v", err)
	}
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("in a mount namespace of its own: %v", err)
	}
	return false
}

// mountMemory gives a directory, which it makes, a file system of so many bytes.
func mountMemory(t *testing.T, dir, size string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatalf("mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}
