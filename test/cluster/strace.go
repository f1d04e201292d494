//go:build unix

package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Strace finds strace. Without it the test is left out, or fails where nobody would notice
// that.
func Strace(t testing.TB) string {
	t.Helper()
	program, err := exec.LookPath("strace")
	if err != nil {
		if os.Getenv("CI") == "" {
			t.Skip("strace is not installed; without it nobody sees what a node asks of the " +
				"disk, and nothing goes wrong with that")
		}
		t.Fatal("strace is not installed: install the package strace")
	}
	//nolint:gosec // strace, as it was found
	out, err := exec.CommandContext(t.Context(), program, "-D", "-qq", "-o", os.DevNull, "true").
		CombinedOutput()
	if err != nil {
		t.Fatalf("strace may not trace here, so the test can prove nothing: %v: %s", err, out)
	}
	return program
}

// A Saboteur makes system calls of the daemons that a test starts go wrong.
type Saboteur struct {
	t    testing.TB
	file string
}

// Sabotage has every daemon that the test starts from now on ask what shall go wrong. At
// first nothing does.
func Sabotage(t *testing.T) *Saboteur {
	t.Helper()
	program, dir := Strace(t), t.TempDir()
	s := &Saboteur{t: t, file: filepath.Join(dir, "inject")}
	s.Inject("")
	// With -D the daemon keeps the process id, which is the shell's, and strace goes when
	// it goes.
	script := "#!/bin/sh\ninject=$(cat '" + s.file + "')\n" +
		"[ -n \"$inject\" ] || exec '" + os.Getenv(envBinary) + "' \"$@\"\n" +
		"exec '" + program + "' -D -f -qq -o " + os.DevNull +
		" -e \"trace=${inject%%:*}\" -e \"inject=$inject\" -- '" +
		os.Getenv(envBinary) + "' \"$@\"\n"
	path := filepath.Join(dir, "sabotaged")
	//nolint:gosec // it is a program
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv(envBinary, path)
	return s
}

// Inject says what goes wrong in the daemons that are started next, in the words of
// strace's option inject, such as msync:error=EIO:when=3. The count is one for each thread.
func (s *Saboteur) Inject(what string) {
	s.t.Helper()
	if err := os.WriteFile(s.file, []byte(what), 0o600); err != nil {
		s.t.Fatal(err)
	}
}
